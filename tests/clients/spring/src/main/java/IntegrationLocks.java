import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/** Spring Integration's registry of locks in both of its modes. Two registries stand for two programs. */
final class IntegrationLocks {
    private static final Duration BRIEF = Duration.ofMillis(300);
    private static final Duration LONG = Duration.ofSeconds(30);

    private final Checks checks;
    private final RedisLockType mode;
    private final LettuceConnectionFactory connections;
    private final RedisLockRegistry here;
    private final RedisLockRegistry there;

    private IntegrationLocks(RedisLockType mode, LettuceConnectionFactory connections) {
        this.mode = mode;
        this.connections = connections;
        checks = new Checks(mode.name());
        here = registry(LONG);
        there = registry(LONG);
    }

    /** So many locks are handed over, one after the other. */
    static void run(LettuceConnectionFactory connections, int handOvers) throws Exception {
        for (RedisLockType mode : RedisLockType.values()) {
            IntegrationLocks locks = new IntegrationLocks(mode, connections);
            locks.ownership();
            for (int number = 1; number <= handOvers; number++) {
                locks.handOver("handover " + number);
            }
            locks.leases();
            locks.renewal();
            locks.race();
            locks.here.destroy();
            locks.there.destroy();
        }
        connections.destroy();
    }

    private RedisLockRegistry registry(Duration lease) {
        RedisLockRegistry registry = new RedisLockRegistry(connections, "locks:" + mode, lease);
        registry.setRedisLockType(mode);
        return registry;
    }

    private void ownership() throws Exception {
        DistributedLock mine = here.obtain("stock");
        DistributedLock theirs = there.obtain("stock");
        mine.lock();
        checks.check("acquire", remainingMs("stock") > 25_000, remainingMs("stock"));
        checks.check("contended acquire is refused", !theirs.tryLock());
        long start = System.nanoTime();
        boolean isTaken = theirs.tryLock(200, MILLISECONDS);
        checks.check("a wait that is too short is refused", !isTaken && Checks.msSince(start) >= 198);
        boolean isRefused = Checks.isRefused(IllegalStateException.class, theirs::unlock);
        checks.check("release by a non-owner is refused", isRefused);
        boolean isMine = Checks.begins(() -> mine.tryLock()).get(10, SECONDS);
        checks.check("another thread of the same program is refused", !isMine);
        checks.check("the holder may take it again", mine.tryLock());
        mine.unlock();
        checks.check("one release is not enough then", !theirs.tryLock());
        mine.unlock();
        checks.check("release", remainingMs("stock") == -2, remainingMs("stock"));
        isRefused = Checks.isRefused(IllegalStateException.class, mine::unlock);
        checks.check("a second release is refused", isRefused);
    }

    /** The holder's lease is far too long for the waiter to wait for: only the release can serve it. */
    private void handOver(String name) throws Exception {
        DistributedLock mine = here.obtain(name);
        DistributedLock theirs = there.obtain(name);
        mine.lock();
        CompletableFuture<Boolean> waiting = Checks.begins(() -> {
            boolean isTaken = theirs.tryLock(20, SECONDS);
            theirs.unlock();
            return isTaken;
        });
        Checks.sleepMs(150);
        checks.check("contended acquire waits", !waiting.isDone());
        long start = System.nanoTime();
        mine.unlock();
        boolean isServed = waiting.get(25, SECONDS);
        long waited = Checks.msSince(start);
        checks.check("and is served by the release", isServed && waited < 5_000, isServed, waited);
    }

    /** A subscribed waiter hears nothing of a lease that ends: it looks again after its registry's own lease. */
    private void leases() throws Exception {
        RedisLockRegistry lapsing = registry(BRIEF);
        RedisLockRegistry patient = registry(Duration.ofSeconds(2));
        DistributedLock mine = lapsing.obtain("lease");
        DistributedLock theirs = patient.obtain("lease");
        long start = System.nanoTime();
        mine.lock();
        theirs.lock();
        long held = Checks.msSince(start);
        checks.check("expiry hands over, not before the lease ended", held >= BRIEF.toMillis(), held);
        boolean isRefused = Checks.isRefused(ConcurrentModificationException.class, mine::unlock);
        checks.check("the lapsed holder cannot release", isRefused);
        checks.check("the heir still holds it", remainingMs("lease") > 0, remainingMs("lease"));
        theirs.unlock();

        checks.check("a lease of its own", there.obtain("own").tryLock(Duration.ZERO, Duration.ofSeconds(5)));
        long left = remainingMs("own");
        checks.check("is as long as was asked for", left > 3_000 && left <= 5_000, left);
        there.obtain("own").unlock();
        lapsing.destroy();
        patient.destroy();
    }

    private void renewal() throws Exception {
        here.obtain("renewed").lock(Duration.ofSeconds(5));
        here.renewLock("renewed");
        long left = remainingMs("renewed");
        checks.check("a holder may renew its lock", left > 25_000 && left <= 30_000, left);
        boolean isRefused = Checks.isRefused(IllegalStateException.class, () -> there.renewLock("renewed"));
        checks.check("others may not", isRefused);
        here.obtain("renewed").unlock();

        ThreadPoolTaskScheduler scheduler = new ThreadPoolTaskScheduler();
        scheduler.setDaemon(true);
        scheduler.initialize();
        RedisLockRegistry watched = registry(Duration.ofMillis(900));
        watched.setRenewalTaskScheduler(scheduler);
        watched.obtain("watched").lock();
        boolean isTaken = there.obtain("watched").tryLock(2, SECONDS);
        checks.check("a scheduler renews it for as long as it is held", !isTaken);
        watched.obtain("watched").unlock();
        checks.check("and no longer", there.obtain("watched").tryLock(5, SECONDS));
        there.obtain("watched").unlock();
        scheduler.shutdown();
        watched.destroy();
    }

    private void race() throws Exception {
        checks.race(List.of(1, 2, 3, 4), (worker, critical) -> {
            DistributedLock lock = (worker % 2 == 0 ? here : there).obtain("race");
            lock.lock();
            try {
                critical.run();
            } finally {
                lock.unlock();
            }
        });
    }

    private long remainingMs(String name) {
        byte[] key = ("locks:" + mode + ":" + name).getBytes();
        try (var connection = connections.getConnection()) {
            return connection.keyCommands().pTtl(key);
        }
    }
}
