import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** What users of a plain Redis client do with a lock, told in terms of {@link Lock}. */
final class Checks {
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
    private static final int WORKERS = 4;
    private static final int ROUNDS = 15;

    private final String label;
    private final Door door;
    private int count;
    private int inside;
    private int overlaps;

    Checks(String label, Door door) {
        this.label = label;
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
        check("acquire", lock.acquire(key, "first", 10_000) && lock.holder(key).equals("first"));
        check("contended acquire is refused", !lock.acquire(key, "second", 10_000));
        check("release by a non-owner is refused", !lock.release(key, "second"));
        check("extend by a non-owner is refused", !lock.extend(key, "second", 60_000));
        check("the owner still holds it", lock.holder(key).equals("first"));
        check("for as long as before", lock.remainingMs(key) <= 10_000);

        check("extend", lock.extend(key, "first", 20_000));
        long left = lock.remainingMs(key);
        check("extend takes the lease anew", left > 19_000 && left <= 20_000);

        CompletableFuture<Void> waiting = CompletableFuture.runAsync(() -> {
            try (Lock second = door.open()) {
                acquirePatiently(second, key, "second");
            }
        });
        TimeUnit.MILLISECONDS.sleep(50);
        check("contended acquire waits", !waiting.isDone());
        check("release", lock.release(key, "first"));
        waiting.get(5, TimeUnit.SECONDS);
        check("and is served by the release", lock.holder(key).equals("second"));
        check("a second release is refused", !lock.release(key, "first"));
        check("the second holder releases", lock.release(key, "second") && lock.holder(key) == null);
    }

    private void leases(Lock lock) {
        String key = key("lease");
        long start = System.nanoTime();
        check("acquire a short lease", lock.acquire(key, "lapsed", LEASE_MS));
        acquirePatiently(lock, key, "heir");
        Duration held = Duration.ofNanos(System.nanoTime() - start);
        check("expiry hands over, not before the lease ended", held.toMillis() >= LEASE_MS);
        check("the lapsed holder cannot release", !lock.release(key, "lapsed"));
        check("the lapsed holder cannot extend", !lock.extend(key, "lapsed", 60_000));
        check("the heir still holds it", lock.release(key, "heir"));
    }

    private void race() throws Exception {
        List<CompletableFuture<Void>> workers = new ArrayList<>();
        for (int worker = 0; worker < WORKERS; worker++) {
            CompletableFuture<Void> finished = new CompletableFuture<>();
            workers.add(finished);
            new Thread(() -> {
                try (Lock lock = door.open()) {
                    work(lock);
                    finished.complete(null);
                } catch (Throwable error) {
                    finished.completeExceptionally(error);
                }
            }).start();
        }
        for (CompletableFuture<Void> worker : workers) {
            worker.get(60, TimeUnit.SECONDS);
        }
        synchronized (this) {
            check("workers never overlap", overlaps == 0);
            check("no update is lost", count == WORKERS * ROUNDS);
        }
    }

    private void work(Lock lock) throws InterruptedException {
        String key = key("race");
        for (int round = 0; round < ROUNDS; round++) {
            String token = UUID.randomUUID().toString();
            acquirePatiently(lock, key, token);
            int seen = enter();
            TimeUnit.MILLISECONDS.sleep(1);
            leave(seen);
            if (!lock.release(key, token)) {
                throw new IllegalStateException("a holder could not release");
            }
        }
    }

    // Each half of an update is synchronized, so that all threads see the counter; only the lock under test
    // makes the two halves one.
    private synchronized int enter() {
        inside++;
        if (inside > 1) {
            overlaps++;
        }
        return count;
    }

    private synchronized void leave(int seen) {
        count = seen + 1;
        inside--;
    }

    private static void acquirePatiently(Lock lock, String key, String token) {
        while (!lock.acquire(key, token, 10_000)) {
            try {
                TimeUnit.MILLISECONDS.sleep(5);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    private String key(String name) {
        return label + ":" + name;
    }

    private void check(String name, boolean truth) {
        if (!truth) {
            System.err.println("FAILED " + label + ": " + name);
            System.exit(1);
        }
        System.out.println("ok " + label + ": " + name);
    }
}
