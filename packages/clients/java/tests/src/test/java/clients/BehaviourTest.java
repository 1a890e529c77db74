package clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.redlatch.client.Held;
import dev.redlatch.client.JedisLocks;
import dev.redlatch.client.LettuceLocks;
import dev.redlatch.client.Lock;
import dev.redlatch.client.LockHeld;
import dev.redlatch.client.LockLost;
import dev.redlatch.client.Locks;
import dev.redlatch.client.Mode;
import dev.redlatch.client.NotSupported;
import dev.redlatch.client.Refused;
import dev.redlatch.client.Unreachable;
import dev.redlatch.junit.Redlatch;
import dev.redlatch.junit.RedlatchServer;
import io.lettuce.core.RedisClient;
import io.lettuce.core.cluster.RedisClusterClient;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.NotSerializableException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalLong;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.providers.ConnectionProvider;
import redis.clients.jedis.util.JedisClusterCRC16;

/** What the scenarios do not say: many threads at once, interrupts, rights, the ends of blocks. */
class BehaviourTest {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    /** Takes for each of fifty contenders: REDLATCH_TAKES=1000 for a long run. */
    private static final int TAKES = Integer.parseInt(System.getenv().getOrDefault("REDLATCH_TAKES", "20"));
    private static RedlatchServer server;

    @BeforeAll
    static void start() {
        server = RedlatchServer.start(1);
    }

    @AfterAll
    static void end() {
        server.close();
    }

    /** A namespace, and locks in it. */
    private static final class Place implements AutoCloseable {
        final Redlatch namespace = server.namespace();
        final Library.Client client;
        final Locks locks;

        Place(Library library) {
            client = library.client(Where.of(namespace));
            locks = client.locks;
        }

        @Override
        public void close() {
            client.close();
            namespace.close();
        }
    }

    @ParameterizedTest
    @EnumSource
    void aCallEndsAtItsBudgetWhileANameIsLookedUp(Library library) {
        CountDownLatch ends = new CountDownLatch(1);
        try (Library.Client client = library.lookingUp(ends)) {
            client.locks.budget(Duration.ofMillis(300));
            for (Lock lock : List.of(client.locks.lock("k"), client.locks.lock("k").waiting(Duration.ofMillis(500)))) {
                long begun = System.nanoTime();
                assertThrows(Unreachable.class, lock::acquire);
                assertTrue(System.nanoTime() - begun < PATIENCE.toNanos() / 4);
            }
            // The lookup ends by itself.
            ends.countDown();
            assertThrows(IllegalArgumentException.class, () -> client.locks.budget(Duration.ZERO));
            assertThrows(IllegalArgumentException.class, () -> client.locks.lockedBy((String) null));
        }
    }

    @Test
    void aClientIsNotNull() {
        List<Executable> wrong = List.of(() -> JedisLocks.over((UnifiedJedis) null), () -> JedisLocks.over((ConnectionProvider) null),
                () -> LettuceLocks.over((RedisClient) null), () -> LettuceLocks.over((RedisClusterClient) null));
        for (Executable each : wrong) {
            String said = assertThrows(NullPointerException.class, each).getMessage();
            assertTrue(said.equals("client") || said.equals("provider"), said);
        }
    }

    @ParameterizedTest
    @EnumSource
    void fiftyThreadsExcludeEachOther(Library library) throws Exception {
        try (Place place = new Place(library)) {
            List<Long> tokens = new ArrayList<>();
            AtomicInteger users = new AtomicInteger();
            List<CompletableFuture<Void>> contenders = new ArrayList<>();
            for (int number = 0; number < 50; number++) {
                contenders.add(inBackground(() -> {
                    for (int take = 0; take < TAKES; take++) {
                        try (Held held = place.locks.lock("k").waiting(PATIENCE).acquire()) {
                            assertEquals(1, users.incrementAndGet(), "two hold the lock");
                            tokens.add(held.token().getAsLong());
                            users.decrementAndGet();
                        }
                    }
                    return null;
                }));
            }
            for (CompletableFuture<Void> each : contenders) {
                each.get();
            }
            assertEquals(50 * TAKES, tokens.size());
            assertEquals(tokens.stream().sorted().distinct().toList(), tokens);
            if (TAKES >= 1000) {
                System.out.println(library + ": " + tokens.size() + " takes, 0 doubles, tokens rise");
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void aWaitIsOneRequest(Library library) throws Exception {
        try (Place place = new Place(library)) {
            CompletableFuture<Boolean> waiter;
            try (Held held = place.locks.lock("k").acquire()) {
                waiter = inBackground(() -> place.locks.lock("k").waiting(PATIENCE).acquire().release());
                // So long a client that polls has asked many times.
                Servers.awaitUntil(() -> waited(place) >= 200);
                assertFalse(held.isLost());
            }
            assertTrue(waiter.get(30, TimeUnit.SECONDS));
            long requests = place.namespace.history("COMMAND", "LOCK.ACQUIRE").stream()
                    .filter(event -> event.get("kind").equals("request"))
                    .count();
            assertEquals(2, requests);
        }
    }

    @ParameterizedTest
    @EnumSource
    void aBlockWhoseLockWasLostSaysSoAtItsEnd(Library library) {
        try (Place place = new Place(library)) {
            LockLost lost = assertThrows(LockLost.class, () -> {
                try (Held held = place.locks.lock("k").acquire()) {
                    place.namespace.call("LOCK.BREAK", "k", "TOKEN", held.token().getAsLong());
                    held.lost().get(30, TimeUnit.SECONDS);
                }
            });
            assertTrue(List.of("broken", "not-held").contains(lost.reason()));
        }
    }

    @ParameterizedTest
    @EnumSource
    void theExceptionOfABlockIsItsOwn(Library library) {
        try (Place place = new Place(library)) {
            ArithmeticException own = assertThrows(ArithmeticException.class, () -> {
                try (Held held = place.locks.lock("k").acquire()) {
                    place.namespace.call("DEL", "k");
                    held.lost().get(30, TimeUnit.SECONDS);
                    throw new ArithmeticException();
                }
            });
            assertEquals(LockLost.class, own.getSuppressed()[0].getClass());
        }
    }

    @ParameterizedTest
    @EnumSource
    void aLockObjectServesSeveralThreadsAndNestsIfItIsReentrant(Library library) throws Exception {
        try (Place place = new Place(library)) {
            Lock lock = place.locks.lock("k").reentrant();
            try (Held outer = lock.acquire(); Held inner = lock.acquire()) {
                assertEquals(outer.token(), inner.token());
                assertEquals(2, lock.lockedBy().orElseThrow().permits());
            }
            assertTrue(lock.lockedBy().isEmpty());
            Lock shared = place.locks.lock("k").shared();
            CyclicBarrier both = new CyclicBarrier(2);
            Callable<Void> read = () -> {
                try (Held held = shared.acquire()) {
                    both.await(30, TimeUnit.SECONDS);
                    assertFalse(held.isLost());
                }
                return null;
            };
            CompletableFuture<Void> first = inBackground(read);
            read.call();
            first.get(30, TimeUnit.SECONDS);
            assertTrue(shared.lockedBy().isEmpty());
        }
    }

    @ParameterizedTest
    @EnumSource
    void oneOfSeveralKeysIsGotAndItsHoldIsOfThatKey(Library library) throws Exception {
        try (Place place = new Place(library)) {
            Lock any = place.locks.anyOf(List.of("\u00e4", "k")).mode("k", Mode.permits(1, 2));
            Held first = any.acquire();
            Held second = any.waiting(PATIENCE).acquire();
            assertEquals(List.of("\u00e4", "k"), List.of(first.key(), second.key()));
            assertEquals("permits", place.locks.lockedBy("k").orElseThrow().kind());
            Held third = any.acquire();
            assertEquals("k", third.key());
            LockHeld refusal = assertThrows(LockHeld.class, any::acquire);
            assertEquals(first.token(), refusal.holder().orElseThrow().token());
            CompletableFuture<Held> waiting = inBackground(() -> any.waiting(PATIENCE).acquire());
            Servers.awaitUntil(() -> waiters(place) == 1);
            assertTrue(first.release());
            Held fourth = waiting.get(30, TimeUnit.SECONDS);
            assertEquals("\u00e4", fourth.key());
            fourth.extend(Duration.ofSeconds(60));
            assertTrue(fourth.release());
            assertTrue(place.locks.lockedBy("\u00e4").isEmpty());
            second.throwIfLost();
            assertTrue(second.release() && third.release());
        }
    }

    @ParameterizedTest
    @EnumSource
    void anInterruptedWaitForOneOfSeveralLeavesEveryQueue(Library library) throws Exception {
        try (Place place = new Place(library); Held held = place.locks.all(List.of("k", "l")).acquire()) {
            Thread[] thread = new Thread[1];
            Lock any = place.locks.anyOf(List.of("l", "k"));
            CompletableFuture<Held> waiting = inBackground(thread, () -> any.waiting(PATIENCE).acquire());
            Servers.awaitUntil(() -> waiters(place) == 1);
            thread[0].interrupt();
            ExecutionException ended = assertThrows(ExecutionException.class, () -> waiting.get(30, TimeUnit.SECONDS));
            assertEquals(InterruptedException.class, ended.getCause().getClass());
            Servers.awaitUntil(() -> waiters(place) == 0);
            held.throwIfLost();
        }
    }

    @ParameterizedTest
    @EnumSource
    void aBlockIsSilentAboutALockThatItHasHandedOver(Library library) throws Exception {
        try (Place place = new Place(library)) {
            CompletableFuture<Held> waiting;
            OptionalLong token;
            try (Held held = place.locks.lock("k").acquire()) {
                waiting = inBackground(() -> place.locks.lock("k").owner("next").waiting(PATIENCE).acquire());
                Servers.awaitUntil(() -> waiters(place) == 1);
                token = held.transferTo("next");
                assertEquals("transferred", held.lost().get(30, TimeUnit.SECONDS).reason());
                assertThrows(LockLost.class, held::throwIfLost);
                assertFalse(held.release());
            }
            Held next = waiting.get(30, TimeUnit.SECONDS);
            assertEquals(token, next.token());
            // An owner that does not wait has a lease, and asks under its name.
            Refused refused = assertThrows(Refused.class, () -> next.transferTo("third"));
            assertTrue(refused.getMessage().startsWith("NOLEASE"));
            next.throwIfLost();
            OptionalLong after = next.transferTo("third", Duration.ofSeconds(60));
            try (Held third = place.locks.lock("k").owner("third").acquire()) {
                assertEquals(after, third.token());
                assertTrue(third.token().getAsLong() > token.getAsLong());
            }
            Held session = place.locks.lock("k").session().acquire();
            waiting = inBackground(() -> place.locks.lock("k").session().owner("next").waiting(PATIENCE).acquire());
            Servers.awaitUntil(() -> waiters(place) == 1);
            assertEquals(session.transferTo("next"), waiting.get(30, TimeUnit.SECONDS).token());
            session.lost().get(30, TimeUnit.SECONDS);
            waiting.get().throwIfLost();
            assertTrue(waiting.get().release());
        }
    }

    @ParameterizedTest
    @EnumSource
    void whatIsLostOrSeveralLocksIsNotHandedOver(Library library) throws Exception {
        try (Place place = new Place(library)) {
            Held lost = place.locks.lock("k").acquire();
            place.namespace.call("LOCK.BREAK", "k", "TOKEN", lost.token().getAsLong());
            assertThrows(LockLost.class, () -> lost.transferTo("next", Duration.ofSeconds(60)));
            assertTrue(place.locks.lockedBy("k").isEmpty());
            try (Held several = place.locks.all(List.of("k", "l")).mode("l", Mode.shared()).acquire()) {
                assertEquals("shared", place.locks.lockedBy("l").orElseThrow().kind());
                assertThrows(IllegalStateException.class, () -> several.transferTo("next"));
                assertThrows(IllegalArgumentException.class, () -> several.transferTo(""));
                assertThrows(IllegalArgumentException.class, () -> several.transferTo(several.owner()));
                assertThrows(IllegalArgumentException.class, () -> several.transferTo("next", Duration.ZERO));
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void whatNoServerGrantsOfSeveralKeysIsRefusedByName(Library library) {
        try (Place place = new Place(library)) {
            Lock any = place.locks.anyOf(List.of("k", "l"));
            List<Executable> wrong = List.of(
                    () -> place.locks.anyOf(List.of()),
                    () -> any.mode("m", Mode.shared()),
                    () -> any.mode("k", Mode.shared()).mode("k", Mode.shared()),
                    () -> place.locks.lock("k").shared().mode("k", Mode.shared()),
                    () -> any.shared(),
                    any::session,
                    () -> any.priority(-1),
                    () -> any.priority(10),
                    () -> Mode.permits(3, 2),
                    () -> place.locks.anyOf(IntStream.rangeClosed(0, 1000).mapToObj(Integer::toString).toList()));
            List<String> named = List.of(
                    "key", "modes", "modes", "one of", "modes", "lease", "priority", "priority", "permits", "keys");
            for (int index = 0; index < wrong.size(); index++) {
                String text = assertThrows(IllegalArgumentException.class, wrong.get(index)).getMessage();
                assertTrue(text.contains(named.get(index)), text);
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void leaveKeepsTheLockWithoutRenewal(Library library) throws Exception {
        try (Place place = new Place(library)) {
            Held held = place.locks.lock("k").acquire();
            held.leave(Duration.ofSeconds(600));
            assertEquals(Duration.ZERO, held.remaining());
            assertFalse(held.isLost());
            assertFalse(held.release());
            assertEquals(599, place.locks.lockedBy("k").orElseThrow().left().orElseThrow().toSeconds(), 10);
        }
    }

    @ParameterizedTest
    @EnumSource
    void aHoldThatWasReleasedIsNeitherExtendedNorLost(Library library) throws Exception {
        try (Place place = new Place(library)) {
            Held held = place.locks.lock("k").acquire();
            assertTrue(held.release());
            LockLost refusal = assertThrows(LockLost.class, held::extend);
            assertTrue(refusal.getMessage().contains("it was released"));
            assertFalse(held.lost().isDone());
            held.close();
        }
    }

    @ParameterizedTest
    @EnumSource
    void locksThatAreClosedTakeNone(Library library) throws Exception {
        try (Place place = new Place(library)) {
            Held session = place.locks.lock("k").session().acquire();
            assertTrue(session.deadline().isEmpty());
            place.locks.close();
            assertThrows(IllegalStateException.class, () -> place.locks.lock("l").acquire());
            // Its connection is closed.
            Servers.awaitUntil(() -> place.locks.lockedBy("k").isEmpty());
            assertEquals("session", session.lost().get(30, TimeUnit.SECONDS).reason());
        }
    }

    @ParameterizedTest
    @EnumSource
    void anInterruptedWaitLeavesTheQueue(Library library) throws Exception {
        try (Place place = new Place(library); Held held = place.locks.lock("k").acquire()) {
            Thread[] thread = new Thread[1];
            CompletableFuture<Held> waiting = inBackground(thread, () -> place.locks.lock("k").waiting(PATIENCE).acquire());
            Servers.awaitUntil(() -> waiters(place) == 1);
            thread[0].interrupt();
            Exception failure = assertThrows(Exception.class, () -> waiting.get(30, TimeUnit.SECONDS));
            assertEquals(InterruptedException.class, failure.getCause().getClass());
            Servers.awaitUntil(() -> waiters(place) == 0);
            assertTrue(held.release());
            assertTrue(place.locks.lockedBy("k").isEmpty());
        }
    }

    @ParameterizedTest
    @EnumSource
    void anInterruptedThreadReleasesAllTheSame(Library library) throws Exception {
        try (Place place = new Place(library)) {
            CompletableFuture<Boolean> wasReleased = inBackground(() -> {
                Held held = place.locks.lock("k").acquire();
                Thread.currentThread().interrupt();
                assertThrows(InterruptedException.class, () -> place.locks.lock("l").acquire());
                Thread.currentThread().interrupt();
                return held.release() && Thread.interrupted();
            });
            assertTrue(wasReleased.get(30, TimeUnit.SECONDS));
            assertTrue(place.locks.lockedBy("k").isEmpty());
        }
    }

    @ParameterizedTest
    @EnumSource
    void whatRunsAtALossMayBlock(Library library) throws Exception {
        try (Place place = new Place(library)) {
            CompletableFuture<Void> never = new CompletableFuture<>();
            Thread test = Thread.currentThread();
            List<Held> holds = new ArrayList<>();
            for (int number = 0; number < 12; number++) {
                Held held = place.locks.lock("k" + number).lease(Duration.ofMillis(200)).unrenewed().acquire();
                held.lost().thenAccept(loss -> {
                    // If it is lost already, this thread runs it.
                    if (Thread.currentThread() != test) {
                        never.join();
                    }
                });
                holds.add(held);
            }
            for (Held held : holds) {
                assertEquals(LockLost.class, held.lost().get(30, TimeUnit.SECONDS).getClass());
            }
            // Renewals go on.
            Held renewed = place.locks.lock("renewed").lease(Duration.ofSeconds(6)).acquire();
            Servers.awaitUntil(() -> renewals(place) >= 2);
            assertTrue(renewed.release());
            never.complete(null);
        }
    }

    /** A hold belongs to its process. */
    @ParameterizedTest
    @EnumSource
    void aHoldIsNotSerializedNorCloned(Library library) throws Exception {
        try (Place place = new Place(library); Held held = place.locks.lock("k").acquire()) {
            NotSerializableException refused = assertThrows(NotSerializableException.class, () -> copied(held));
            assertEquals("dev.redlatch.client.Held", refused.getMessage());
            assertThrows(NotSerializableException.class, () -> copied(new ArrayList<>(List.of(held))));
            assertFalse(Cloneable.class.isAssignableFrom(Held.class));
            assertEquals(held.token(), place.locks.lockedBy("k").orElseThrow().token());
        }
    }

    @ParameterizedTest
    @EnumSource
    void errorsCanBeSerialized(Library library) throws Exception {
        try (Place place = new Place(library); Held held = place.locks.lock("k").meta("reason", "release").acquire()) {
            LockHeld refusal = assertThrows(LockHeld.class, () -> place.locks.lock("k").acquire());
            assertEquals(refusal.getMessage(), copied(refusal).getMessage());
            place.namespace.call("DEL", "k");
            LockLost lost = held.lost().get(30, TimeUnit.SECONDS);
            LockLost copy = copied(lost);
            assertEquals(lost.reason(), copy.reason());
            assertEquals(lost.token(), copy.token());
            assertThrows(LockLost.class, held::close);
        }
    }

    @ParameterizedTest
    @EnumSource
    void aUserWhoMayNotSubscribeFindsLossesOutByRenewal(Library library) throws Exception {
        // Users are those of a server, not of a namespace.
        try (Servers.Running process = Servers.withJournal(); Beside operator = Beside.to(Where.port(process.port))) {
            operator.ask("ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", "resetchannels");
            Warnings warnings = new Warnings();
            try (Library.Client client = library.client(Where.port(process.port).as("limited", "secret"))) {
                Held held = client.locks.lock("k").lease(Duration.ofSeconds(3)).acquire();
                Servers.awaitUntil(() -> warnings.said("renewals only"));
                operator.ask("DEL", "k");
                assertEquals("not-held", held.lost().get(30, TimeUnit.SECONDS).reason());
            } finally {
                warnings.end();
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void aServerThatIsGoneIsUnreachable(Library library) throws Exception {
        Servers.Running process = Servers.withJournal();
        try (Library.Client client = library.client(Where.port(process.port), Duration.ofSeconds(1))) {
            Held held = client.locks.lock("k").lease(Duration.ofSeconds(2)).acquire();
            process.kill();
            assertThrows(dev.redlatch.client.Unreachable.class, () -> client.locks.lock("l").acquire());
            assertEquals("unrenewed", held.lost().get(30, TimeUnit.SECONDS).reason());
        } finally {
            process.close();
        }
    }

    @ParameterizedTest
    @EnumSource
    void theOneTryThatReleasesALostHoldMeetsNoConnectionThatHasEnded(Library library) throws Exception {
        try (Place place = new Place(library)) {
            Held held = place.locks.lock("k").acquire();
            place.namespace.call("LOCK.BREAK", "k", "TOKEN", held.token().getAsLong());
            held.lost().get(30, TimeUnit.SECONDS);
            place.namespace.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
            assertFalse(held.release());
        }
    }

    @ParameterizedTest
    @EnumSource
    void anInterruptedThreadReleasesOverANewConnectionAllTheSame(Library library) throws Exception {
        try (Place place = new Place(library)) {
            Held held = place.locks.lock("k").acquire();
            CompletableFuture<Boolean> wasReleased = inBackground(() -> {
                place.namespace.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
                Thread.currentThread().interrupt();
                return held.release() && Thread.interrupted();
            });
            assertTrue(wasReleased.get(30, TimeUnit.SECONDS));
            assertTrue(place.locks.lockedBy("k").isEmpty());
        }
    }

    @ParameterizedTest
    @EnumSource
    void aSlotThatMovesTakesItsLocksAlong(Library library) throws Exception {
        try (RedlatchServer cluster = RedlatchServer.start(2, "--cluster-enabled", "yes");
                Redlatch namespace = cluster.namespace();
                Library.Client client = library.client(Where.cluster(namespace))) {
            Held held = client.locks.lock("k").acquire();
            int slot = JedisClusterCRC16.getSlot("k");
            namespace.slots().move(slot, 2);
            held.extend();
            namespace.slots().move(slot, 1);
            held.extend();
            assertThrows(LockHeld.class, () -> client.locks.lock("k").waiting(Duration.ofMillis(10)).acquire());
            assertTrue(held.release());
        }
    }

    @ParameterizedTest
    @EnumSource
    void aPlainServerHasNoTokenToFenceWith(Library library) throws Exception {
        try (Servers.Running process = Servers.plain(Servers.redis());
                Library.Client client = library.client(Where.port(process.port));
                Held held = client.locks.lock("k").acquire()) {
            assertThrows(NotSupported.class, () -> held.fenced(null));
        }
    }

    private static <T> CompletableFuture<T> inBackground(Callable<T> work) {
        return inBackground(new Thread[1], work);
    }

    private static <T> CompletableFuture<T> inBackground(Thread[] thread, Callable<T> work) {
        CompletableFuture<T> result = new CompletableFuture<>();
        thread[0] = new Thread(() -> {
            try {
                result.complete(work.call());
            } catch (Throwable failure) {
                result.completeExceptionally(failure);
            }
        });
        thread[0].setDaemon(true);
        thread[0].start();
        return result;
    }

    private static long waiters(Place place) {
        return place.locks.lockedBy("k").orElseThrow().waiters().getAsLong();
    }

    private static long waited(Place place) {
        Object waited = ((java.util.Map<?, ?>) place.namespace.call("LOCK.WHO", "k")).get("waited");
        return waited == null ? 0 : (Long) waited;
    }

    private static long renewals(Place place) {
        Object holders = ((java.util.Map<?, ?>) place.namespace.call("LOCK.WHO", "renewed")).get("holders");
        return (Long) ((java.util.Map<?, ?>) ((List<?>) holders).get(0)).get("renewals");
    }

    @SuppressWarnings("unchecked")
    private static <T> T copied(T error) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        new ObjectOutputStream(bytes).writeObject(error);
        return (T) new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray())).readObject();
    }

    /** Hears what the client warns of. */
    static final class Warnings extends Handler {
        private static final Logger LOGGER = Logger.getLogger("dev.redlatch.client");
        private final StringBuffer said = new StringBuffer();

        Warnings() {
            LOGGER.addHandler(this);
        }

        boolean said(String text) {
            return said.indexOf(text) >= 0;
        }

        void end() {
            LOGGER.removeHandler(this);
        }

        @Override
        public void publish(LogRecord record) {
            said.append(record.getMessage());
        }

        @Override
        public void flush() {}

        @Override
        public void close() {}
    }
}
