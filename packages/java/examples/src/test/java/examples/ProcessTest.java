package examples;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import dev.redlatch.junit.Redlatch;
import dev.redlatch.junit.RedlatchExtension;
import dev.redlatch.junit.RedlatchServer;
import dev.redlatch.junit.Where;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;
import org.junit.platform.testkit.engine.EngineTestKit;

/** The process of the server, and what a failed test says. */
class ProcessTest {
    @Test
    void aServerTellsItsPortsAndStops() {
        RedlatchServer server = RedlatchServer.start(3);
        assertEquals(3, server.ports().size());
        assertEquals("redis://127.0.0.1:" + server.ports().get(0), server.url());
        assertEquals("PONG", server.call("PING"));
        server.close();
        server.close();
        assertFalse(accepts(server.ports().get(0)));
    }

    @Test
    void aStartThatFailsSaysWhy() {
        String said = assertThrows(IllegalStateException.class, () -> RedlatchServer.start(1, "--no-such-flag")).getMessage();
        assertTrue(said.contains("no-such-flag"), said);
    }

    @Test
    void aProgramOfAnotherProcessorIsRefused(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("another one");
        // An ELF file for 32-bit ARM.
        byte[] head = Arrays.copyOf(new byte[] {0x7f, 'E', 'L', 'F', 1, 1, 1}, 64);
        head[18] = 40;
        Files.write(file, head);
        for (boolean executable : new boolean[] {false, true}) {
            assertTrue(file.toFile().setExecutable(executable));
            ProcessBuilder another = another(Parent.class).redirectErrorStream(true);
            another.environment().put("REDLATCH_BINARY", file.toString());
            Process process = another.start();
            String said = new String(process.getInputStream().readAllBytes());
            assertTrue(process.waitFor() != 0 && said.contains("for this system and processor"), said);
        }
    }

    @Test
    void aServerEndsWhenItsParentIsKilled() throws Exception {
        Process parent = another(Parent.class).start();
        int port = Integer.parseInt(new BufferedReader(new InputStreamReader(parent.getInputStream())).readLine());
        assertTrue(accepts(port));
        parent.destroyForcibly().waitFor();
        while (accepts(port)) {
            Thread.sleep(50);
        }
    }

    @Test
    void aFailedTestShowsItsTimelineAndTheFaultsThatNeverHit() {
        PrintStream error = System.err;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        System.setErr(new PrintStream(said, true));
        System.setProperty("failing", "yes");
        try {
            EngineTestKit.engine("junit-jupiter").selectors(selectClass(Failing.class)).execute()
                    .testEvents().assertStatistics(run -> run.started(1).failed(1));
        } finally {
            System.setErr(error);
            System.clearProperty("failing");
        }
        assertTrue(said.toString().contains("redlatch: timeline of 'fails(Redlatch)'"), said.toString());
        assertTrue(said.toString().contains("lock:shown"), said.toString());
        assertTrue(Pattern.compile("fault 1 never hit in 'fails.*SETNX").matcher(said.toString()).find());
    }

    /** Fails on purpose. */
    @EnabledIfSystemProperty(named = "failing", matches = "yes")
    @ExtendWith(RedlatchExtension.class)
    static class Failing {
        @Test
        void fails(Redlatch redlatch) {
            redlatch.faults().dropReply(new Where().command("SETNX"));
            redlatch.call("SET", "lock:shown", "worker");
            throw new AssertionError("on purpose");
        }
    }

    /** The main method of a class in a process of its own. */
    private static ProcessBuilder another(Class<?> main) {
        String java = ProcessHandle.current().info().command().orElseThrow();
        return new ProcessBuilder(java, "-cp", System.getProperty("java.class.path"), main.getName());
    }

    /** Starts a server, and waits. */
    static final class Parent {
        public static void main(String[] arguments) throws InterruptedException {
            System.out.println(RedlatchServer.start(1).ports().get(0));
            Thread.sleep(Long.MAX_VALUE);
        }
    }

    private static boolean accepts(int port) {
        try (Socket socket = new Socket("127.0.0.1", port)) {
            return socket.isConnected();
        } catch (IOException refused) {
            return false;
        }
    }
}
