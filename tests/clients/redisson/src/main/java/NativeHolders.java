import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;

/** RLock and native holders of the same key. The lock of one is a hash, that of the other a string. */
final class NativeHolders {
    private static final int LEASE_MS = 300;

    private final Checks checks = new Checks("native holders");
    private final Connection asking;
    private final Connection waiting;

    private NativeHolders(Connection asking, Connection waiting) {
        this.asking = asking;
        this.waiting = waiting;
    }

    static void run(RedissonClient here, RedissonClient there) throws Exception {
        try (Connection asking = Servers.connect();
                Connection waiting = Servers.connect();
                Owner owner = new Owner(here)) {
            NativeHolders natives = new NativeHolders(asking, waiting);
            natives.takeTurns(owner, here.getLock("stock"));
            natives.outlives(owner, here.getLock("lease"));
            natives.comesAfterRedisson(owner, there.getLock("lease"));
        }
    }

    private void takeTurns(Owner owner, RLock lock) throws Exception {
        long first = token(asking.ask("LOCK.ACQUIRE", "stock", "first", "LEASE", 10_000));
        checks.check("what a native client holds is an error", fails(owner, lock));
        checks.check("which names the reason", String.valueOf(reason(owner, lock)).contains("WRONGTYPE"));
        checks.check("and nobody else's lock changes", asking.ask("GET", "stock").equals("first"));
        checks.check("a release by a native client", asking.ask("LOCK.RELEASE", "stock", "first").equals(1L));
        owner.does(lock::lock);

        Map<?, ?> who = Connection.map(asking.ask("LOCK.WHO", "stock"));
        Map<?, ?> holder = Connection.map(((List<?>) who.get("holders")).get(0));
        String thread = ":" + owner.gets(() -> Thread.currentThread().getId());
        checks.check("lets Redisson have it", holder.get("owner").toString().endsWith(thread), who, thread);
        Map<?, ?> client = Connection.map(holder.get("client"));
        checks.check("LOCK.WHO names its client", client.get("addr").toString().contains(":"), client);
        Object second = asking.ask("LOCK.TOKEN", "stock", holder.get("owner"));
        checks.check("its token is higher", second instanceof Long token && token > first, first, second);
        checks.check("a native client is refused", asking.ask("LOCK.ACQUIRE", "stock", "heir") == null);

        owner.does(lock::lock);
        var served = waits("stock");
        owner.does(lock::unlock);
        checks.check("one release of two is not enough", !served.isDone() && lock.isLocked());
        owner.does(lock::unlock);
        // One command later: nobody can have come between.
        checks.check("a native waiter has it as soon as it is released", asking.ask("GET", "stock").equals("heir"));
        long third = token(served.get(20, SECONDS));
        checks.check("with a higher token", third > (Long) second, second, third);
        checks.check("and Redisson is refused again", fails(owner, lock));
        asking.ask("LOCK.RELEASE", "stock", "heir");
    }

    /** The lease of Redisson's lock ends while a native client waits. */
    private void outlives(Owner owner, RLock lock) throws Exception {
        long start = System.nanoTime();
        checks.check("a short lease", owner.gets(() -> lock.tryLock(0, LEASE_MS, MILLISECONDS)));
        token(waits("lease").get(20, SECONDS));
        long waited = Checks.msSince(start);
        checks.check("is waited for, to its end", waited >= LEASE_MS - 2, waited);
        checks.check("and it is a native lock then", asking.ask("GET", "lease").equals("heir"));
    }

    private void comesAfterRedisson(Owner owner, RLock lock) throws Exception {
        boolean isRefused = owner.isRefused(RedisException.class, () -> lock.tryLock(20, 10, SECONDS));
        checks.check("Redisson does not wait for a native client, it fails", isRefused);
        asking.ask("LOCK.RELEASE", "lease", "heir");
        checks.check("after the release it does not", owner.gets(() -> lock.tryLock(20, 10, SECONDS)));
        owner.does(lock::unlock);
    }

    /** Begins to wait for a lock natively, and returns when the server knows. */
    private CompletableFuture<Object> waits(String key) throws Exception {
        var served = Checks.begins(() -> waiting.ask("LOCK.ACQUIRE", key, "heir", "LEASE", 10_000, "WAIT", 10_000));
        // Who was refused twice counts as polling.
        boolean isWaiting = Checks.becomes(() -> ((List<?>) asking.ask("LOCK.WAITERS", key)).stream()
            .anyMatch(waiter -> "queued".equals(Connection.map(waiter).get("how"))));
        checks.check("a native client waits", isWaiting);
        return served;
    }

    private static boolean fails(Owner owner, RLock lock) throws Exception {
        return owner.isRefused(RedisException.class, () -> lock.tryLock());
    }

    private static String reason(Owner owner, RLock lock) throws Exception {
        return owner.gets(() -> {
            try {
                return "took it: " + lock.tryLock();
            } catch (RedisException error) {
                return error.getMessage();
            }
        });
    }

    private static long token(Object grant) {
        return (Long) Connection.map(grant).get("token");
    }
}
