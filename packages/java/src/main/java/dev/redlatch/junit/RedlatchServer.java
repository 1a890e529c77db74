package dev.redlatch.junit;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A running server. {@link RedlatchExtension} starts one for all tests; start your own where tests are run by something else.
 *
 * <p>The program is the one that the variable REDLATCH_BINARY names, else {@code redlatch} in the search path.
 */
public final class RedlatchServer implements AutoCloseable {
    /** A start or an end that takes longer has failed. */
    private static final long PROCESS_SECONDS_MAX = 30;

    private final Process process;
    private final String binary;
    private final String ready;
    private final List<Integer> ports;
    private Connection control;

    private RedlatchServer(Process process, String binary, String ready) {
        this.process = process;
        this.binary = binary;
        this.ready = ready;
        List<Integer> ports = new ArrayList<>();
        for (String port : told("ports\":\\s*\\[([^\\]]*)").split(",")) {
            ports.add(Integer.valueOf(port.trim()));
        }
        this.ports = Collections.unmodifiableList(ports);
    }

    /**
     * Starts a server on free ports of this machine, and returns once it accepts connections. It ends with {@link #close}, or
     * with this process, however that ends.
     *
     * @param nodes how many ports are opened, each a store of its own
     * @param flags further flags of the program
     */
    public static RedlatchServer start(int nodes, String... flags) {
        String binary = Binary.find();
        List<String> command = new ArrayList<>(List.of(binary, "--port", "auto", "--ready-json"));
        command.addAll(List.of("--enable-test-commands", "local"));
        command.addAll(List.of("--exit-with-parent", Long.toString(ProcessHandle.current().pid())));
        if (nodes != 1) {
            command.addAll(List.of("--nodes", Integer.toString(nodes)));
        }
        command.addAll(Arrays.asList(flags));
        Process process;
        try {
            process = new ProcessBuilder(command).start();
        } catch (IOException failure) {
            throw new UncheckedIOException("redlatch does not start: " + failure.getMessage() + ": REDLATCH_BINARY must name a"
                    + " program that this user may execute, for this system and processor", failure);
        }
        try {
            return new RedlatchServer(process, binary, readiness(process, binary));
        } catch (RuntimeException failure) {
            process.destroyForcibly();
            throw failure;
        }
    }

    /** The URL of the namespace default. */
    public String url() {
        return told("url\":\\s*\"([^\"]*)");
    }

    /** The address. */
    public String host() {
        return URI.create(url()).getHost();
    }

    /** The port of each node. */
    public List<Integer> ports() {
        return ports;
    }

    /** The number of the process. */
    public long pid() {
        return Long.parseLong(told("pid\":\\s*(\\d+)"));
    }

    /** The version of the program. */
    public String version() {
        return told("version\":\\s*\"([^\"]*)");
    }

    /** A new namespace. */
    public Redlatch namespace() {
        return namespace("java-" + Long.toHexString(new SecureRandom().nextLong()));
    }

    /** A namespace by its name: 1 to 128 letters, digits and {@code . _ : / @ -}. The first client that enters makes it. */
    public Redlatch namespace(String name) {
        return new Redlatch(this, name);
    }

    /** All namespaces: name, clients, keys, mode of each. */
    public List<Map<String, Object>> namespaces() {
        return Replies.maps(call("TEST.NAMESPACE", "LIST"));
    }

    /** Ends a namespace and disconnects its clients. False if there is none of that name. */
    public boolean drop(String name) {
        return call("TEST.NAMESPACE", "DROP", name).equals(1L);
    }

    /** Sends a command in the namespace default. A reply is null, String, Long, Double, Boolean, List or Map. */
    public synchronized Object call(Object... words) {
        try {
            if (control == null) {
                control = Connection.open(host(), ports.get(0), null);
            }
            return control.call(words);
        } catch (IOException lost) {
            if (control != null) {
                control.close();
                control = null;
            }
            throw new UncheckedIOException(lost);
        }
    }

    /** Ends the server. */
    @Override
    public synchronized void close() {
        if (control != null) {
            control.close();
            control = null;
        }
        process.destroy();
        try {
            if (!process.waitFor(PROCESS_SECONDS_MAX, TimeUnit.SECONDS)) {
                process.destroyForcibly().waitFor();
            }
        } catch (InterruptedException hurried) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }

    /** Runs the program with these arguments, and returns what it prints. */
    String run(String... arguments) {
        List<String> command = new ArrayList<>(List.of(binary));
        command.addAll(Arrays.asList(arguments));
        try {
            Process run = new ProcessBuilder(command).start();
            CompletableFuture<String> complaint = CompletableFuture.supplyAsync(() -> text(run.getErrorStream()));
            String printed = text(run.getInputStream());
            if (run.waitFor() != 0) {
                throw new IllegalStateException("redlatch " + arguments[0] + ": " + complaint.join().trim());
            }
            return printed;
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        } catch (InterruptedException hurried) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("redlatch " + arguments[0] + ": interrupted");
        }
    }

    private String told(String pattern) {
        Matcher found = Pattern.compile('"' + pattern).matcher(ready);
        if (!found.find()) {
            throw new IllegalStateException("not the line of a redlatch that is ready: " + ready);
        }
        return found.group(1);
    }

    /** The line of JSON that the server prints once it accepts connections. */
    private static String readiness(Process process, String binary) {
        CompletableFuture<String> line = CompletableFuture.supplyAsync(() -> {
            try {
                return new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8)).readLine();
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        });
        String late = "it said nothing for " + PROCESS_SECONDS_MAX + " s";
        String ready = line.completeOnTimeout(late, PROCESS_SECONDS_MAX, TimeUnit.SECONDS).join();
        if (ready != null && ready.startsWith("{")) {
            return ready;
        }
        String complaint = ready == null ? text(process.getErrorStream()).trim() : ready;
        // Java hands a file that the system cannot execute to a shell, which complains in its own words.
        throw new IllegalStateException("redlatch does not start: " + complaint + " (" + binary
                + "; REDLATCH_BINARY names another program, for this system and processor)");
    }

    private static String text(InputStream stream) {
        try {
            return new String(stream.readAllBytes(), StandardCharsets.UTF_8);
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }
}
