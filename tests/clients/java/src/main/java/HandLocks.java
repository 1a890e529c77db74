import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** What users of a plain Redis client do with a lock, told in terms of {@link Lock}. */
final class HandLocks {
    /** The four commands that such users send. */
    interface Lock extends AutoCloseable {
        /** SET key token NX PX lease. */
        boolean acquire(String key, String token, long leaseMs);

        /** The compare-and-delete script. */
        boolean release(String key, String token);

        /** The compare-and-pexpire script. */
        boolean extend(String key, String token, long leaseMs);

        /** PTTL. */
        long remainingMs(String key);

        /** GET. */
        String holder(String key);

        @Override
        void close();
    }

    /** Opens one more connection. */
    interface Door {
        Lock open();
    }

    static final String HOST = System.getenv("REDLATCH_HOST");
    static final int PORT = Integer.parseInt(System.getenv("REDLATCH_PORT"));
    static final String RELEASE = """
            if redis.call("get",KEYS[1]) == ARGV[1] then
                return redis.call("del",KEYS[1])
            else
                return 0
            end""";
    static final String EXTEND = """
            if redis.call("get", KEYS[1]) == ARGV[1] then
                return redis.call("pexpire", KEYS[1], ARGV[2])
            else
                return 0
            end""";
    private static final long LEASE_MS = 200;

    private final String label;
    private final Door door;
    private final Checks checks;

    HandLocks(String label, Door door) {
        this.label = label;
        checks = new Checks(label);
        this.door = door;
    }

    void run() throws Exception {
        try (Lock lock = door.open()) {
            ownership(lock);
            leases(lock);
        }
        race();
    }

    private void ownership(Lock lock) throws Exception {
        String key = key("stock");
        checks.check("acquire", lock.acquire(key, "first", 10_000) && lock.holder(key).equals("first"));
        checks.check("contended acquire is refused", !lock.acquire(key, "second", 10_000));
        checks.check("release by a non-owner is refused", !lock.release(key, "second"));
        checks.check("extend by a non-owner is refused", !lock.extend(key, "second", 60_000));
        checks.check("the owner still holds it", lock.holder(key).equals("first"));
        checks.check("for as long as before", lock.remainingMs(key) <= 10_000);

        checks.check("extend", lock.extend(key, "first", 20_000));
        long left = lock.remainingMs(key);
        checks.check("extend takes the lease anew", left > 19_000 && left <= 20_000);

        CompletableFuture<Void> waiting = CompletableFuture.runAsync(() -> {
            try (Lock second = door.open()) {
                acquirePatiently(second, key, "second");
            }
        });
        Checks.sleepMs(50);
        checks.check("contended acquire waits", !waiting.isDone());
        checks.check("release", lock.release(key, "first"));
        waiting.get(5, TimeUnit.SECONDS);
        checks.check("and is served by the release", lock.holder(key).equals("second"));
        checks.check("a second release is refused", !lock.release(key, "first"));
        checks.check("the second holder releases", lock.release(key, "second") && lock.holder(key) == null);
    }

    private void leases(Lock lock) {
        String key = key("lease");
        long start = System.nanoTime();
        checks.check("acquire a short lease", lock.acquire(key, "lapsed", LEASE_MS));
        acquirePatiently(lock, key, "heir");
        long held = Checks.msSince(start);
        checks.check("expiry hands over, not before the lease ended", held >= LEASE_MS);
        checks.check("the lapsed holder cannot release", !lock.release(key, "lapsed"));
        checks.check("the lapsed holder cannot extend", !lock.extend(key, "lapsed", 60_000));
        checks.check("the heir still holds it", lock.release(key, "heir"));
    }

    private void race() throws Exception {
        List<Lock> locks = List.of(door.open(), door.open(), door.open(), door.open());
        checks.race(locks, (lock, critical) -> {
            String token = UUID.randomUUID().toString();
            acquirePatiently(lock, key("race"), token);
            critical.run();
            if (!lock.release(key("race"), token)) {
                throw new IllegalStateException("a holder could not release");
            }
        });
        locks.forEach(Lock::close);
    }

    private static void acquirePatiently(Lock lock, String key, String token) {
        while (!lock.acquire(key, token, 10_000)) {
            Checks.sleepMs(5);
        }
    }

    private String key(String name) {
        return label + ":" + name;
    }
}
