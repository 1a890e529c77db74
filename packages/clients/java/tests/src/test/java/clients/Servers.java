package clients;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import redis.clients.jedis.exceptions.JedisException;

/** Servers for the tests: processes that end with the test that started them. */
final class Servers {
    private static final long PATIENCE_NANOS = 30_000_000_000L;

    private Servers() {}

    static String redlatch() {
        return program("REDLATCH_BINARY", "redlatch");
    }

    static String redis() {
        return needed(program("REDLATCH_REDIS_SERVER", "redis-server"), "redis-server");
    }

    static String valkey() {
        return needed(System.getenv("REDLATCH_VALKEY_SERVER"), "valkey-server (REDLATCH_VALKEY_SERVER)");
    }

    /** Skips the test without the program, and says so. REDLATCH_REQUIRE_CLIENTS: none may be missing. */
    private static String needed(String program, String name) {
        return needed(program, name, "REDLATCH_REQUIRE_CLIENTS");
    }

    private static String needed(String program, String name, String required) {
        if (program == null) {
            System.err.println("skipped: there is no " + name);
        }
        if (System.getenv(required) != null) {
            assertNotNull(program, "there is no " + name);
        }
        assumeTrue(program != null, "skipped: there is no " + name);
        return program;
    }

    static String etcd() {
        String etcd = needed(program("REDLATCH_ETCD", "etcd"), "etcd", "REDLATCH_REQUIRE_NODES");
        Ran ran = run(List.of(redlatch(), "check-config", "--cluster-etcd", "http://127.0.0.1:1"), "");
        return needed(ran.output().contains("lacks the feature") ? null : etcd, "feature etcd", "REDLATCH_REQUIRE_NODES");
    }

    /** A program that a variable names, or one of the search path; null if there is none. */
    static String program(String variable, String name) {
        String named = System.getenv(variable);
        if (named != null) {
            return named;
        }
        return Arrays.stream((System.getenv("PATH") + ":/usr/sbin").split(File.pathSeparator))
                .map(folder -> folder + "/" + name)
                .filter(path -> Files.isExecutable(Path.of(path)))
                .findFirst()
                .orElse(null);
    }

    /** Below those that the system gives to connections, which would take it before the server does. */
    static int freePort() {
        while (true) {
            int port = ThreadLocalRandom.current().nextInt(10_000, 32_000);
            try (ServerSocket listener = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
                return listener.getLocalPort();
            } catch (IOException taken) {
                // Another one is tried.
            }
        }
    }

    static void awaitUntil(BooleanSupplier isSo) {
        long begun = System.nanoTime();
        while (!isSo.getAsBoolean()) {
            if (System.nanoTime() - begun > PATIENCE_NANOS) {
                throw new AssertionError("it is not so in time");
            }
            pause();
        }
    }

    static void pause() {
        try {
            Thread.sleep(5);
        } catch (InterruptedException interrupt) {
            throw new IllegalStateException(interrupt);
        }
    }

    /** What a command has printed. */
    record Ran(int code, String output) {}

    static Ran run(List<String> command, String input) {
        try {
            Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
            try (var stream = process.getOutputStream()) {
                stream.write(input.getBytes());
            }
            String output = new String(process.getInputStream().readAllBytes());
            return new Ran(process.waitFor(), output);
        } catch (IOException | InterruptedException failure) {
            throw new IllegalStateException(String.join(" ", command), failure);
        }
    }

    static Path folder() {
        try {
            return Files.createTempDirectory("redlatch-client");
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    static void remove(Path folder) {
        try (Stream<Path> files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).forEach(each -> each.toFile().delete());
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    static Running plain(String program) {
        int port = freePort();
        return new Running(port, program, "--port", "" + port, "--save", "", "--loglevel", "warning");
    }

    static Running withJournal() {
        int port = freePort();
        return new Running(port, redlatch(), "--port", "" + port, "--dir", ".", "--loglevel", "warning");
    }

    /** A Sentinel of Redis that watches a server. */
    static Running sentinel(String program, int watched) {
        int port = freePort();
        Path config = folder().resolve("sentinel.conf");
        try {
            Files.writeString(config, "port " + port + "\nsentinel monitor locks 127.0.0.1 " + watched + " 1\n");
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
        return new Running(port, program, config.toString(), "--sentinel");
    }

    /** The servers of {@code ../../peer.py}, which serve nobody. */
    static final class Peers implements AutoCloseable {
        private final Process process;
        private final JsonObject ports;

        /** {@code port}: of a server that serves. */
        Peers(int port) {
            try {
                process = new ProcessBuilder("python3", Scenario.beside("peer.py"), "" + port)
                        .redirectError(ProcessBuilder.Redirect.INHERIT)
                        .start();
                ports = JsonParser.parseString(process.inputReader().readLine()).getAsJsonObject();
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }

        int port(String peer) {
            return ports.get(peer).getAsInt();
        }

        @Override
        public void close() {
            process.destroyForcibly().onExit().join();
        }
    }

    /** A process in a directory of its own, which may be killed and started again. */
    static final class Running implements AutoCloseable {
        final int port;
        private final Path folder = folder();
        private final List<String> command;
        private Process process;

        Running(int port, String... command) {
            this.port = port;
            this.command = List.of(command);
            start();
        }

        /** Ends it, and starts it again. */
        void restart() {
            kill();
            start();
        }

        void kill() {
            process.destroyForcibly().onExit().join();
        }

        private void start() {
            process = launch(command, folder);
            awaitUntil(() -> {
                if (!process.isAlive()) {
                    throw new AssertionError(command.get(0) + " does not start");
                }
                return answers(port);
            });
        }

        @Override
        public void close() {
            kill();
            remove(folder);
        }
    }

    static boolean answers(int port) {
        try (Beside beside = Beside.to(Where.port(port))) {
            return beside.ask("PING").equals("PONG");
        } catch (JedisException notYet) {
            return false;
        }
    }

    static Process launch(List<String> command, Path folder) {
        try {
            return new ProcessBuilder(command)
                    .directory(folder.toFile())
                    .redirectErrorStream(true)
                    .redirectOutput(ProcessBuilder.Redirect.appendTo(folder.resolve("log").toFile()))
                    .start();
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    /** Two nodes of redlatch on an etcd, which clients find as Sentinels. */
    static final class Nodes implements AutoCloseable {
        final List<Integer> ports = List.of(freePort(), freePort());
        private final Path folder = folder();
        private final List<Process> processes = new ArrayList<>();
        private final String etcd;
        private final Process[] nodes = new Process[2];

        Nodes() {
            String program = Servers.etcd();
            etcd = "http://127.0.0.1:" + freePort();
            String peer = "http://127.0.0.1:" + freePort();
            processes.add(launch(
                    List.of(program, "--name", "m0", "--data-dir", folder + "/m0", "--listen-client-urls", etcd,
                            "--advertise-client-urls", etcd, "--listen-peer-urls", peer,
                            "--initial-advertise-peer-urls", peer, "--initial-cluster", "m0=" + peer),
                    folder));
            start(0);
            start(1);
            leader();
        }

        int leader() {
            int[] leader = new int[1];
            ports.forEach(port -> awaitUntil(() -> answers(port)));
            awaitUntil(() -> {
                try (Beside beside = Beside.to(Where.port(ports.get(0)))) {
                    List<?> address = (List<?>) beside.ask("SENTINEL", "get-master-addr-by-name", "mymaster");
                    leader[0] = address == null ? 0 : Integer.parseInt((String) address.get(1));
                    return leader[0] != 0;
                } catch (JedisException notYet) {
                    return false;
                }
            });
            return leader[0];
        }

        /** Ends it, and starts it again as a standby. */
        void killLeader() {
            int index = ports.indexOf(leader());
            nodes[index].destroyForcibly().onExit().join();
            start(index);
        }

        private void start(int index) {
            List<String> command = List.of(redlatch(), "--port", "" + ports.get(index), "--cluster-etcd", etcd);
            nodes[index] = launch(command, folder);
            processes.add(nodes[index]);
        }

        @Override
        public void close() {
            processes.forEach(each -> each.destroyForcibly().onExit().join());
            remove(folder);
        }
    }
}
