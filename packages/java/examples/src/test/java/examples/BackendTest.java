package examples;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.redlatch.junit.Clock;
import dev.redlatch.junit.CommandException;
import dev.redlatch.junit.EventKind;
import dev.redlatch.junit.Fault;
import dev.redlatch.junit.Faults;
import dev.redlatch.junit.Nodes;
import dev.redlatch.junit.Redlatch;
import dev.redlatch.junit.RedlatchTest;
import dev.redlatch.junit.Where;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.config.Config;

/** Every verb of the namespace, each test in one of its own. */
@RedlatchTest(nodes = 5)
class BackendTest {
    private Redlatch before;

    @BeforeEach
    void aTestAndItsSetUpShareTheNamespace(Redlatch redlatch) {
        before = redlatch;
    }

    @Test
    void theClockStandsStillMovesAndRuns(Redlatch redlatch) {
        assertEquals(before, redlatch);
        Clock clock = redlatch.clock();
        Instant frozen = clock.freeze();
        redlatch.call("SET", "key", "value", "PX", 5_000);
        assertEquals(frozen.plusMillis(400), clock.advance(Duration.ofMillis(400)));
        assertEquals(4_600L, redlatch.call("PTTL", "key"));
        assertEquals(frozen.plusSeconds(1), clock.set(frozen.plusSeconds(1)));
        assertEquals(frozen.plusSeconds(1), clock.now());
        assertThrows(CommandException.class, () -> clock.set(frozen));
        assertEquals(frozen.plusSeconds(3601), clock.stepWall(Duration.ofHours(1)));
        assertEquals(4_000L, redlatch.call("PTTL", "key"));
        assertTrue(clock.next().isPresent());
        assertEquals(0L, redlatch.call("EXISTS", "key"));
        assertTrue(clock.next().isEmpty());
        clock.auto(Duration.ofMillis(5));
        assertNull(redlatch.call("BLPOP", "queue", 3600));
        clock.run();
        assertEquals("running", clock.show().get("mode"));
    }

    @Test
    @RedlatchTest(freeze = true)
    void theAnnotationOfTheMethodWins(Redlatch redlatch) {
        assertEquals("frozen", redlatch.clock().show().get("mode"));
        assertEquals(1, redlatch.nodes().list().size());
    }

    @Test
    void namespacesDoNotMeet(Redlatch redlatch) {
        Redlatch other = redlatch.server().namespace("java/tests:other");
        redlatch.call("SET", "key", "value");
        assertEquals(0L, other.call("EXISTS", "key"));
        List<Object> names = redlatch.server().namespaces().stream()
                .map(namespace -> namespace.get("name")).collect(Collectors.toList());
        assertTrue(names.containsAll(List.of(redlatch.name(), other.name())));
        assertTrue(redlatch.server().drop(other.name()));
        assertFalse(redlatch.server().drop(other.name()));
    }

    @Test
    void nodesCrashPauseAndAreSeparated(Redlatch redlatch) {
        Nodes nodes = redlatch.nodes();
        Function<String, Object> second = field -> nodes.list().get(1).get(field);
        nodes.crash(2);
        assertEquals("crashed", second.apply("state"));
        nodes.start(2);
        nodes.pause(2);
        assertEquals("paused", second.apply("state"));
        nodes.resume(2);
        nodes.partition(2, "far");
        assertEquals(List.of("far"), second.apply("partitions"));
        nodes.heal(2);
        nodes.skew(2, Duration.ofSeconds(3));
        assertEquals(3_000L, second.apply("skew"));
        redlatch.call("SET", "key", "value");
        nodes.crashKeep(1);
        assertEquals(0L, redlatch.call("EXISTS", "key")); // another node answers
        nodes.start(1);
        assertEquals("value", redlatch.call("GET", "key"));
    }

    @Test
    void aReplyThatIsLostIsAnErrorOfTheHolder(Redlatch redlatch) throws InterruptedException {
        Config config = new Config();
        config.setPassword(redlatch.password());
        config.useSingleServer().setAddress(redlatch.address()).setRetryAttempts(0).setTimeout(1_000);
        RedissonClient client = Redisson.create(config);
        RLock lock = client.getLock("stock");
        Fault fault = redlatch.faults().dropReply(new Where().key("st*").script("acquire").times(1));
        assertThrows(RedisException.class, () -> lock.tryLock(0, 30, SECONDS));
        assertEquals(1, fault.hits());
        client.shutdown();
    }

    @Test
    void faultsActAndAreCounted(Redlatch redlatch) {
        Faults faults = redlatch.faults();
        Where once = new Where().command("INCR").key("count*").times(1);
        List<Function<Where, Fault>> ends =
                List.of(faults::dropReply, faults::halfReply, faults::dropBefore, faults::reset);
        for (Function<Where, Fault> end : ends) {
            Fault fault = end.apply(once);
            assertThrows(UncheckedIOException.class, () -> redlatch.call("INCR", "counter"));
            assertEquals(1, fault.met());
            assertTrue(fault.remove());
            assertFalse(fault.remove());
        }
        assertEquals("2", redlatch.call("GET", "counter"));

        faults.error("OOM no memory", once);
        CommandException refusal = assertThrows(CommandException.class, () -> redlatch.call("INCR", "counter"));
        assertEquals("OOM", refusal.code());
        assertEquals(1, faults.clear());
        faults.duplicate(once);
        assertEquals(4L, redlatch.call("INCR", "counter"));
        faults.expireKey(new Where().command("INCR").nth(1));
        redlatch.call("INCR", "counter");
        assertEquals(0L, redlatch.call("EXISTS", "counter"));
        faults.clear();

        redlatch.clock().freeze();
        faults.stall(Duration.ofSeconds(1), once);
        Fault delay = faults.delay(Duration.ofSeconds(1), new Where().command("DECR").probability(1, 7));
        Redlatch worker = single(redlatch);
        CompletableFuture<Object> stalled = CompletableFuture.supplyAsync(() -> worker.call("INCR", "counter"));
        while (!"1".equals(redlatch.call("GET", "counter"))) {
            Thread.onSpinWait();
        }
        redlatch.clock().advance(Duration.ofMillis(1_001));
        assertEquals(1L, stalled.join());
        CompletableFuture<Object> delayed = CompletableFuture.supplyAsync(() -> worker.call("DECR", "counter"));
        while (delay.hits() == 0) {
            Thread.onSpinWait();
        }
        assertEquals("1", redlatch.call("GET", "counter"));
        redlatch.clock().advance(Duration.ofMillis(1_001));
        assertEquals(0L, delayed.join());
    }

    @Test
    void aGrantAndARefusalAreEvents(Redlatch redlatch) {
        for (String value : List.of("one", "two")) {
            redlatch.call("SET", "lock:stock", value, "PX", 30_000, "NX");
        }
        List<Map<String, Object>> events = redlatch.history("KEY", "lock:stock");
        Map<String, Object> granted = events.get(1);
        Map<String, Object> refused = events.get(4);
        assertEquals(EventKind.GRANTED, granted.get("kind"));
        assertEquals(30_000L, granted.get("lease"));
        assertEquals(EventKind.REFUSED, refused.get("kind"));
        assertEquals("two", refused.get("holder"));
    }

    @Test
    void whatHappenedIsRecordedCountedCheckedAndDrawn(Redlatch redlatch) {
        redlatch.call("SET", "lock:stock", "worker", "PX", 30_000, "NX");
        assertEquals(List.of(), redlatch.check());
        redlatch.call("DEL", "lock:stock");
        assertEquals(1L, redlatch.calls("KEY", "lock:*").get("DEL"));
        List<Map<String, Object>> events = redlatch.history("COMMAND", "DEL", "COUNT", "1");
        assertEquals("lock:stock", events.get(0).get("key"));
        assertEquals("blind-delete", redlatch.check().get(0).get("rule"));
        assertTrue(redlatch.timeline().contains("lock:stock"));
        assertTrue(redlatch.timeline("html").contains("<table>"));
    }

    /** The same namespace, on a connection of its own. */
    private static Redlatch single(Redlatch redlatch) {
        return redlatch.server().namespace(redlatch.name());
    }
}
