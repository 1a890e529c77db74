package clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.redlatch.client.LockLost;
import dev.redlatch.client.OnUnavailable;
import dev.redlatch.client.shedlock.RedlatchLockProvider;
import dev.redlatch.client.spring.RedlatchLockRegistry;
import dev.redlatch.junit.Redlatch;
import dev.redlatch.junit.RedlatchServer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockAssert;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockExtender;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.spring.annotation.EnableSchedulerLock;
import net.javacrumbs.shedlock.spring.annotation.SchedulerLock;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.integration.aggregator.AggregatingMessageHandler;
import org.springframework.integration.aggregator.DefaultAggregatingMessageGroupProcessor;
import org.springframework.integration.channel.QueueChannel;
import org.springframework.integration.store.SimpleMessageStore;
import org.springframework.integration.support.MessageBuilder;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.scheduling.annotation.Scheduled;

/** The adapters in the frameworks that they are for. */
class AdaptersTest {
    private RedlatchServer server;
    private Redlatch namespace;
    private Library.Client client;

    @BeforeEach
    void start() {
        server = RedlatchServer.start(1);
        namespace = server.namespace();
        client = Library.LETTUCE_3.client(Where.of(namespace));
    }

    @AfterEach
    void end() {
        client.close();
        server.close();
    }

    @Test
    void oneOfTwoProcessesRunsAJobOfShedLock() {
        namespace.clock().freeze();
        LockConfiguration job = job(Duration.ofSeconds(60), Duration.ofSeconds(50));
        AtomicInteger runs = new AtomicInteger();
        Runnable once = () -> {
            LockAssert.assertLocked();
            runs.incrementAndGet();
            // The other one does not run it while it runs here.
            CompletableFuture.runAsync(() -> executor().executeWithLock((Runnable) runs::incrementAndGet, job)).join();
        };
        executor().executeWithLock(once, job);
        executor().executeWithLock(once, job);
        assertEquals(1, runs.get());
        // lockAtLeastFor is over.
        namespace.clock().advance(Duration.ofMillis(50_001));
        executor().executeWithLock((Runnable) runs::incrementAndGet, job(Duration.ofSeconds(60), Duration.ZERO));
        assertTrue(client.locks.lockedBy("lock:shedlock:report").isEmpty());
        assertEquals(2, runs.get());
    }

    @Test
    void aJobOfShedLockExtendsItsLockAndLosesItAfterLockAtMostFor() {
        namespace.clock().freeze();
        executor().executeWithLock((Runnable) () -> {
            LockExtender.extendActiveLock(Duration.ofSeconds(600), Duration.ZERO);
            Duration left = client.locks.lockedBy("lock:shedlock:report").orElseThrow().left().orElseThrow();
            assertEquals(600, left.toSeconds(), 1);
        }, job(Duration.ofSeconds(60), Duration.ZERO));
        assertTrue(client.locks.lockedBy("lock:shedlock:report").isEmpty());
        executor().executeWithLock((Runnable) () -> {
            namespace.clock().advance(Duration.ofSeconds(61));
            assertTrue(client.locks.lockedBy("lock:shedlock:report").isEmpty());
        }, job(Duration.ofSeconds(60), Duration.ofSeconds(50)));
    }

    /** A program with a job of Spring's scheduler. */
    @Configuration
    @EnableScheduling
    @EnableSchedulerLock(defaultLockAtMostFor = "PT60S")
    static class Program {
        static final AtomicInteger RUNS = new AtomicInteger();
        static final CountDownLatch STARTED = new CountDownLatch(1);
        static LockProvider provider;

        @Bean
        LockProvider lockProvider() {
            return provider;
        }

        @Scheduled(fixedDelay = 20)
        @SchedulerLock(name = "spring", lockAtLeastFor = "PT50S")
        public void report() {
            LockAssert.assertLocked();
            RUNS.incrementAndGet();
            STARTED.countDown();
        }
    }

    @Test
    void oneOfTwoProgramsRunsAJobOfSpringsScheduler() throws InterruptedException {
        Program.provider = new RedlatchLockProvider(client.locks);
        try (var first = new AnnotationConfigApplicationContext(Program.class);
                var second = new AnnotationConfigApplicationContext(Program.class)) {
            assertTrue(Program.STARTED.await(30, TimeUnit.SECONDS));
            // Both have asked again since.
            int asked = requests();
            Servers.awaitUntil(() -> requests() >= asked + 6);
            assertTrue(first.isActive() && second.isActive());
        }
        assertEquals(1, Program.RUNS.get());
    }

    @Test
    void aRegistryOfSpringIntegrationHasLocksThatAThreadOwnsReentrantly() throws Exception {
        RedlatchLockRegistry registry = registry();
        RedlatchLockRegistry other = registry();
        Lock lock = registry.obtain("7");
        lock.lock();
        lock.lock();
        assertFalse(other.obtain("7").tryLock());
        assertFalse(other.obtain("7").tryLock(50, TimeUnit.MILLISECONDS));
        lock.unlock();
        assertFalse(other.obtain("7").tryLock());
        assertFalse(CompletableFuture.supplyAsync(lock::tryLock).get(30, TimeUnit.SECONDS));
        assertThrows(Exception.class, () -> CompletableFuture.runAsync(lock::unlock).get(30, TimeUnit.SECONDS));
        registry.expireUnusedOlderThan(-1);
        registry.obtain("7").unlock();
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertTrue(other.obtain("7").tryLock());
        assertThrows(TimeoutException.class, () -> registry.executeLocked("7", Duration.ofMillis(50), () -> {}));
        other.obtain("7").unlock();
        registry.executeLocked("7", () -> assertTrue(client.locks.lockedBy("lock:orders:7").isPresent()));
        assertTrue(client.locks.lockedBy("lock:orders:7").isEmpty());
    }

    @Test
    void aLockOfARegistryThatWasLostSaysSo() throws Exception {
        Lock lock = registry().obtain("7");
        lock.lockInterruptibly();
        long token = client.locks.lockedBy("lock:orders:7").orElseThrow().token().getAsLong();
        namespace.call("LOCK.BREAK", "lock:orders:7", "TOKEN", token);
        LockLost lost = assertThrows(LockLost.class, lock::unlock);
        assertEquals("lock:orders:7", lost.key());
        assertTrue(lock.tryLock());
        lock.unlock();
    }

    @Test
    void twoAggregatorsOfSpringIntegrationShareAGroup() throws Exception {
        SimpleMessageStore store = new SimpleMessageStore();
        QueueChannel output = new QueueChannel();
        List<AggregatingMessageHandler> aggregators = new ArrayList<>();
        for (int number = 0; number < 2; number++) {
            AggregatingMessageHandler aggregator =
                    new AggregatingMessageHandler(new DefaultAggregatingMessageGroupProcessor(), store);
            aggregator.setLockRegistry(registry());
            aggregator.setOutputChannel(output);
            aggregators.add(aggregator);
        }
        List<CompletableFuture<Void>> sending = new ArrayList<>();
        for (int number = 0; number < 40; number++) {
            int part = number;
            var message = MessageBuilder.withPayload(part)
                    .setCorrelationId("group")
                    .setSequenceSize(40)
                    .setSequenceNumber(part + 1)
                    .build();
            sending.add(CompletableFuture.runAsync(() -> aggregators.get(part % 2).handleMessage(message)));
        }
        for (CompletableFuture<Void> each : sending) {
            each.get(30, TimeUnit.SECONDS);
        }
        assertEquals(40, ((List<?>) output.receive(30_000).getPayload()).size());
    }

    @Test
    void withoutAServerAJobOfShedLockRunsInEachProcess() {
        AtomicInteger runs = new AtomicInteger();
        try (Library.Client nowhere = Library.LETTUCE_3.client(Where.port(Servers.freePort()))) {
            nowhere.locks.budget(Duration.ofMillis(200)).onUnavailable(OnUnavailable.OPEN);
            DefaultLockingTaskExecutor executor = new DefaultLockingTaskExecutor(new RedlatchLockProvider(nowhere.locks));
            for (Duration atLeast : List.of(Duration.ZERO, Duration.ofSeconds(50))) {
                executor.executeWithLock((Runnable) () -> {
                    LockExtender.extendActiveLock(Duration.ofSeconds(600), Duration.ZERO);
                    runs.incrementAndGet();
                }, job(Duration.ofSeconds(60), atLeast));
            }
            assertEquals(2, nowhere.locks.opened());
        }
        assertEquals(2, runs.get());
    }

    @Test
    void withoutAServerARegistryHasLocksOfItsProcessAlone() throws Exception {
        try (Library.Client nowhere = Library.LETTUCE_3.client(Where.port(Servers.freePort()))) {
            nowhere.locks.budget(Duration.ofMillis(200)).onUnavailable(OnUnavailable.OPEN);
            RedlatchLockRegistry registry = new RedlatchLockRegistry(nowhere.locks, "lock:orders:");
            Lock lock = registry.obtain("7");
            assertTrue(lock.tryLock());
            assertTrue(lock.tryLock(50, TimeUnit.MILLISECONDS));
            assertFalse(CompletableFuture.supplyAsync(lock::tryLock).get(30, TimeUnit.SECONDS));
            lock.unlock();
            lock.unlock();
            assertThrows(IllegalMonitorStateException.class, lock::unlock);
            AtomicInteger runs = new AtomicInteger();
            registry.executeLocked("7", Duration.ofMillis(50), runs::incrementAndGet);
            assertEquals(1, runs.get());
            assertEquals(2, nowhere.locks.opened());
        }
    }

    private int requests() {
        return namespace.calls().getOrDefault("LOCK.ACQUIRE", 0L).intValue();
    }

    private RedlatchLockRegistry registry() {
        return new RedlatchLockRegistry(client.locks, "lock:orders:");
    }

    private DefaultLockingTaskExecutor executor() {
        return new DefaultLockingTaskExecutor(new RedlatchLockProvider(client.locks));
    }

    private static LockConfiguration job(Duration atMost, Duration atLeast) {
        return new LockConfiguration(java.time.Instant.now(), "report", atMost, atLeast);
    }
}
