package clients;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
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

    /** Without it the test is skipped, and says so. REDLATCH_REQUIRE_CLIENTS: it must be there. */
    static String redis() {
        String program = program("REDLATCH_REDIS_SERVER", "redis-server");
        String missing = "there is no redis-server";
        if (System.getenv("REDLATCH_REQUIRE_CLIENTS") != null) {
            assertNotNull(program, missing);
        }
        assumeTrue(program != null, missing);
        return program;
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
}
