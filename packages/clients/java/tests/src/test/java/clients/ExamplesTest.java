package clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.redlatch.client.Held;
import dev.redlatch.client.Locks;
import dev.redlatch.client.StaleToken;
import dev.redlatch.junit.Redlatch;
import dev.redlatch.junit.RedlatchServer;
import examples.Integration;
import examples.Leader;
import examples.Orders;
import examples.Report;
import examples.Stock;
import examples.Train;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.sql.Connection;
import java.sql.DriverManager;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.springframework.beans.factory.support.RootBeanDefinition;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.integration.support.locks.LockRegistry;

/** The examples of the documentation, each run. They print, so one runs after the other. */
@Execution(ExecutionMode.SAME_THREAD)
class ExamplesTest {
    private RedlatchServer server;
    private Redlatch namespace;
    private Library.Client client;
    private Locks locks;
    private final PrintStream console = System.out;
    private final ByteArrayOutputStream said = new ByteArrayOutputStream();

    @BeforeEach
    void start() {
        server = RedlatchServer.start(1);
        namespace = server.namespace();
        client = Library.LETTUCE_3.client(Where.of(namespace));
        locks = client.locks;
        System.setOut(new PrintStream(said, true));
    }

    @AfterEach
    void end() {
        System.setOut(console);
        client.close();
        server.close();
    }

    @Test
    void stock() throws Exception {
        List<String> written = new ArrayList<>();
        assertTrue(Stock.restock(locks, List.of("a", "b"), (article, token) -> written.add(article + (token > 0))));
        assertEquals(List.of("atrue", "btrue"), written);
        namespace.clock().freeze();
        try (Held held = locks.lock("lock:stock").meta("reason", "stocktaking").acquire()) {
            CompletableFuture<Boolean> refused = CompletableFuture.supplyAsync(() -> {
                try {
                    return Stock.restock(locks, List.of("a"), (article, token) -> written.add(article));
                } catch (InterruptedException never) {
                    throw new IllegalStateException(never);
                }
            });
            Servers.awaitUntil(() -> locks.lockedBy("lock:stock").orElseThrow().waiters().getAsLong() == 1);
            namespace.clock().advance(Duration.ofMillis(5_001));
            assertFalse(refused.get(30, TimeUnit.SECONDS));
            String text = said.toString();
            assertTrue(text.contains("stocktaking"), text);
            assertTrue(text.contains("redlatch break lock:stock --token " + held.token().getAsLong()), text);
        }
        assertEquals(2, written.size());
    }

    @Test
    void train() throws Exception {
        BlockingQueue<String> begun = new LinkedBlockingQueue<>();
        Semaphore ends = new Semaphore(0);
        ExecutorService jobs = Executors.newFixedThreadPool(3);
        Callable<Void> job = () -> {
            Train.train(locks, "acme", gpu -> {
                begun.add(gpu);
                ends.acquireUninterruptibly();
            });
            return null;
        };
        List<Future<Void>> all = List.of(jobs.submit(job), jobs.submit(job), jobs.submit(job));
        Set<String> first = Set.of(begun.poll(30, TimeUnit.SECONDS), begun.poll(30, TimeUnit.SECONDS));
        assertEquals(Set.of("gpu:0", "gpu:1"), first);
        Servers.awaitUntil(() -> locks.lockedBy("tenant:acme").orElseThrow().waiters().getAsLong() == 1);
        ends.release();
        assertTrue(first.contains(begun.poll(30, TimeUnit.SECONDS)));
        ends.release(2);
        for (Future<Void> each : all) {
            each.get(30, TimeUnit.SECONDS);
        }
        jobs.shutdown();
        for (String key : List.of("gpu:0", "gpu:1", "tenant:acme", "total")) {
            assertTrue(locks.lockedBy(key).isEmpty(), key);
        }
    }

    @Test
    void leader() throws Exception {
        BlockingQueue<Long> tokens = new LinkedBlockingQueue<>();
        Thread leading = new Thread(() -> {
            try {
                Leader.leadForever(locks, held -> {
                    tokens.add(held.token().getAsLong());
                    try {
                        Thread.sleep(Long.MAX_VALUE);
                    } catch (InterruptedException lost) {
                        // It leads no more.
                    }
                });
            } catch (InterruptedException end) {
                // The test has ended.
            }
        });
        leading.start();
        long first = tokens.poll(30, TimeUnit.SECONDS);
        assertEquals(1L, namespace.call("LOCK.BREAK", "lock:leader", "TOKEN", first, "REASON", "drained"));
        assertTrue(tokens.poll(30, TimeUnit.SECONDS) > first);
        leading.interrupt();
        leading.join(30_000);
        assertTrue(said.toString().contains("lock:leader is lost"), said.toString());
    }

    @Test
    void orders() throws Exception {
        try (Connection database = DriverManager.getConnection("jdbc:sqlite::memory:")) {
            FenceTest.install(database, FenceTest.fence("sqlite"));
            FenceTest.install(database, "CREATE TABLE orders (id, state);");
            FenceTest.install(database, "INSERT INTO orders VALUES (7, 'open'), (8, 'open');");
            database.setAutoCommit(false);
            Orders.closeOrder(locks, database, 7);
            FenceTest.install(database, "UPDATE redlatch_fence SET token = token + 1000000;");
            database.commit();
            assertThrows(StaleToken.class, () -> Orders.closeOrder(locks, database, 8));
            FenceTest.rollBack(database);
            assertEquals("closed open", FenceTest.value(database, "SELECT group_concat(state, ' ') FROM orders"));
        }
    }

    @Test
    void report() {
        try (AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext()) {
            context.registerBeanDefinition("locks", locksBean());
            context.register(Report.class);
            context.refresh();
            Report report = context.getBean(Report.class);
            report.report();
            report.report();
            assertEquals("the report", said.toString().trim());
            Duration left = locks.lockedBy("lock:shedlock:report").orElseThrow().left().orElseThrow();
            assertTrue(left.compareTo(Duration.ofSeconds(30)) > 0);
        }
    }

    @Test
    void integration() throws Exception {
        LockRegistry registry = Integration.registry(locks);
        Integration.close(registry, 7, () -> assertTrue(locks.lockedBy("lock:orders:7").isPresent()));
        assertTrue(locks.lockedBy("lock:orders:7").isEmpty());
    }

    private RootBeanDefinition locksBean() {
        return new RootBeanDefinition(Locks.class, () -> locks);
    }
}
