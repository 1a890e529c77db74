package clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.redlatch.client.Held;
import dev.redlatch.client.LettuceLocks;
import dev.redlatch.client.Lock;
import dev.redlatch.client.Locks;
import dev.redlatch.client.OnUnavailable;
import dev.redlatch.client.Unreachable;
import dev.redlatch.junit.Redlatch;
import dev.redlatch.junit.RedlatchServer;
import io.lettuce.core.RedisClient;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** How long before its deadline a hold is lost, what a program goes on with if no server answers, and slow networks. */
class EndingTest {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static RedlatchServer server;

    @BeforeAll
    static void start() {
        server = RedlatchServer.start(1);
    }

    @AfterAll
    static void end() {
        server.close();
    }

    @ParameterizedTest
    @EnumSource
    void aHoldIsLostATenthBeforeItsDeadlineAndASecondAtMost(Library library) throws Exception {
        Servers.Running process = Servers.withJournal();
        try (Library.Client client = library.client(Where.port(process.port), Duration.ofSeconds(1))) {
            Map<Duration, Held> holds = new TreeMap<>();
            Lock lock = client.locks.lock("k").shared();
            // The most that is left, and the hold.
            holds.put(Duration.ofMillis(599), lock.session(Duration.ofMillis(5_990)).acquire());
            holds.put(Duration.ofMillis(600), lock.lease(Duration.ofSeconds(6)).acquire());
            holds.put(Duration.ofSeconds(1), lock.lease(Duration.ofSeconds(12)).acquire());
            holds.put(Duration.ofSeconds(7), lock.stopBefore(Duration.ofSeconds(7)).lease(Duration.ofSeconds(12)).acquire());
            process.kill();
            for (Duration most : holds.keySet()) {
                Held held = holds.get(most);
                held.lost().thenRun(() -> assertLeft(held, most)).get(30, TimeUnit.SECONDS);
                assertEquals("unrenewed", held.lost().get().reason());
            }
        } finally {
            process.close();
        }
    }

    private static void assertLeft(Held held, Duration most) {
        long left = held.deadline().getAsLong() - System.nanoTime();
        assertTrue(left > 0 && left <= most.toNanos(), () -> Duration.ofNanos(left) + " before the deadline, at most " + most);
    }

    @ParameterizedTest
    @EnumSource
    void aLockIsRenewedInTimeToBeStoppedLong(Library library) throws Exception {
        try (Redlatch namespace = server.namespace(); Library.Client client = library.client(Where.of(namespace))) {
            Lock lock = client.locks.lock("k").stopBefore(Duration.ofSeconds(9)).lease(Duration.ofSeconds(12));
            try (Held held = lock.acquire()) {
                Servers.awaitUntil(() -> namespace.calls().getOrDefault("LOCK.EXTEND", 0L) >= 2);
                held.throwIfLost();
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void whatIsLeftToWorkInIsMoreThanNothing(Library library) throws Exception {
        try (Redlatch namespace = server.namespace(); Library.Client client = library.client(Where.of(namespace))) {
            // Its lease comes later, so that only acquire knows both.
            Lock lock = client.locks.lock("k").stopBefore(Duration.ofSeconds(40));
            assertThrows(IllegalArgumentException.class, lock::acquire);
            assertThrows(IllegalArgumentException.class, lock.session(Duration.ofSeconds(40))::acquire);
            assertThrows(IllegalArgumentException.class, () -> lock.stopBefore(Duration.ofNanos(-1)));
            Held held = lock.lease(Duration.ofSeconds(60)).acquire();
            assertThrows(IllegalArgumentException.class, () -> held.extend(Duration.ofSeconds(40)));
            // It is left, so that nobody has to stop before its end.
            held.leave(Duration.ofSeconds(40));
            assertTrue(client.locks.lockedBy("k").isPresent());
        }
    }

    @ParameterizedTest
    @EnumSource
    void anOpenHoldIsSaidAndCountedAndSendsNothing(Library library) throws Exception {
        BehaviourTest.Warnings warnings = new BehaviourTest.Warnings();
        try (Library.Client client = library.client(Where.port(Servers.freePort()))) {
            Locks locks = client.locks.budget(Duration.ofMillis(200));
            assertThrows(Unreachable.class, () -> locks.lock("k").acquire());
            locks.onUnavailable(OnUnavailable.OPEN);
            try (Held held = locks.lock("open " + library).acquire()) {
                assertTrue(held.isOpen() && held.token().isEmpty() && held.deadline().isEmpty() && !held.isLost());
                assertEquals(ChronoUnit.FOREVER.getDuration(), held.remaining());
                assertEquals(1, locks.opened());
                assertTrue(warnings.said("no server answers: this goes on without the lock open " + library + ": "));
                // No database is asked.
                assertThrows(Unreachable.class, () -> held.fenced(null));
                held.extend();
                held.extend(Duration.ofMinutes(1));
            }
            Held left = locks.lock("left").acquire();
            left.leave(Duration.ofMinutes(1));
            Held session = locks.lock("session").session().acquire();
            assertThrows(IllegalStateException.class, session::extend);
            assertFalse(left.release() || session.release());
            assertEquals(3, locks.opened());
        } finally {
            warnings.end();
        }
    }

    @ParameterizedTest
    @EnumSource
    void theDeadlineCountsFromAnOpenConnection(Library library) throws Exception {
        try (Redlatch namespace = server.namespace();
                Proxy proxy = new Proxy(Where.of(namespace), 3_000);
                Library.Client client = library.client(proxy.where(), PATIENCE)) {
            Lock lock = client.locks.lock("k").lease(Duration.ofMillis(2_500)).unrenewed();
            for (Lock each : List.of(lock, lock.waiting(PATIENCE))) {
                Held held = each.acquire();
                assertFalse(held.isLost());
                assertTrue(held.release());
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void anAnswerThatComesByteByByteEndsAtTheBudget(Library library) throws Exception {
        try (Redlatch namespace = server.namespace();
                Proxy proxy = new Proxy(Where.of(namespace), 0);
                Library.Client client = library.client(proxy.where())) {
            try (Held held = client.locks.lock("k").acquire()) {
                assertEquals(held.token(), client.locks.lockedBy("k").orElseThrow().token());
                client.locks.budget(Duration.ofSeconds(1));
                proxy.trickle(400);
                long begun = System.nanoTime();
                assertThrows(Unreachable.class, () -> client.locks.lockedBy("k"));
                assertTrue(System.nanoTime() - begun < PATIENCE.toNanos() / 3);
                proxy.trickle(0);
                client.locks.budget(PATIENCE);
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void whatIsClosedHasOpenedItsConnections(Library library) throws Exception {
        try (Redlatch namespace = server.namespace();
                Proxy proxy = new Proxy(Where.of(namespace), 300);
                Library.Client client = library.client(proxy.where())) {
            Held held = client.locks.lock("k").acquire();
            if (library == Library.LETTUCE_2 || library == Library.LETTUCE_3) {
                // That of the subscription.
                Servers.awaitUntil(() -> proxy.opening() == 1);
                client.locks.close();
                assertEquals(0, proxy.opening());
            }
            assertTrue(held.release());
        }
    }

    @Test
    void aClientOfLettuceThatIsShutDownFirstPrintsNoStackTrace() throws Exception {
        List<Throwable> uncaught = new CopyOnWriteArrayList<>();
        Thread.UncaughtExceptionHandler usual = Thread.getDefaultUncaughtExceptionHandler();
        Thread.setDefaultUncaughtExceptionHandler((thread, failure) -> uncaught.add(failure));
        // With threads of its own, which end.
        RedisClient client = RedisClient.create();
        try (Redlatch namespace = server.namespace();
                Locks locks = LettuceLocks.over(client, Library.uri(Where.of(namespace), PATIENCE))) {
            Held held = locks.lock("k").lease(Duration.ofSeconds(4)).acquire();
            Servers.awaitUntil(() -> namespace.calls().getOrDefault("PSUBSCRIBE", 0L) >= 1);
            client.shutdown(Duration.ZERO, Duration.ofSeconds(10));
            assertEquals("unrenewed", held.lost().get(30, TimeUnit.SECONDS).reason());
        } finally {
            Thread.setDefaultUncaughtExceptionHandler(usual);
        }
        assertEquals(List.of(), uncaught);
    }
}
