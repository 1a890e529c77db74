import java.io.FileWriter;
import java.io.IOException;
import java.util.Arrays;
import java.util.concurrent.Callable;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson in Sentinel mode takes part in a check of mutual exclusion: what it asks and hears, in the lines of tests/locks/mutex/history.rs. */
final class RedissonHistory {
    /** Redisson's locks are hashes, and exclude each other alone. */
    private static final String LOCK = "lock:redisson";

    private static final int THREADS = 2;
    private static final AtomicLong CALLS = new AtomicLong();
    private static final long END_NS =
            System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(Long.parseLong(System.getenv("REDLATCH_MUTEX_MILLIS")));

    private static FileWriter book;

    private RedissonHistory() {}

    public static void main(String[] none) throws Exception {
        book = new FileWriter(System.getenv("REDLATCH_MUTEX_HISTORY"), true);
        String[] nodes = System.getenv("REDLATCH_MUTEX_SENTINELS").split(",");
        Config config = new Config();
        config.useSentinelServers().setMasterName(Takeover.NAME).setTimeout(1000)
                .addSentinelAddress(Arrays.stream(nodes).map(node -> "redis://" + node).toArray(String[]::new));
        RedissonClient client = Redisson.create(config);
        Thread[] threads = new Thread[THREADS];
        for (int number = 0; number < THREADS; number++) {
            threads[number] = new Thread(() -> useUntilEnd(client.getLock(LOCK)));
            threads[number].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.exit(0);
    }

    private static void useUntilEnd(RLock lock) {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        while (System.nanoTime() < END_NS) {
            try {
                use(lock, 1 + random.nextInt(4000));
            } catch (Exception error) {
                // The call stays without an answer.
            }
            Checks.sleepMs(random.nextInt(20));
        }
    }

    private static void use(RLock lock, int leaseMs) throws Exception {
        String token = "java-" + ProcessHandle.current().pid() + "-" + CALLS.incrementAndGet();
        if (record("acquire", token, token + " " + leaseMs, () -> lock.tryLock(50, leaseMs, TimeUnit.MILLISECONDS))) {
            Checks.sleepMs(ThreadLocalRandom.current().nextInt(leaseMs) / 2);
            record("release", token, token, () -> {
                lock.unlock();
                return true;
            });
        }
    }

    /** Writes the call down before it leaves, and its answer when it is there. */
    private static boolean record(String verb, String token, String words, Callable<Boolean> call) throws Exception {
        String name = verb + "-" + token;
        write("sent " + name + " " + System.nanoTime() + " " + LOCK + " " + verb + " " + words);
        boolean isDone;
        try {
            isDone = call.call();
        } catch (IllegalMonitorStateException notHeld) {
            isDone = false;
        }
        write("got " + name + " " + System.nanoTime() + (isDone ? " yes" : " no"));
        return isDone;
    }

    private static synchronized void write(String line) throws IOException {
        book.write(line + "\n");
        book.flush();
    }
}
