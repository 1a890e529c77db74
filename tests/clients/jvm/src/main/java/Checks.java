import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;

/** Says what holds, ends the program where something does not, and lets threads race. */
final class Checks {
    /** Something to do that may fail. */
    interface Deed {
        void run() throws Exception;
    }

    /** One round of a race: it must run `critical` while it has the lock to itself. */
    interface Round<W> {
        void run(W worker, Runnable critical) throws Exception;
    }

    private static final int ROUNDS = 10;

    private final String label;
    private int count;
    private int inside;
    private int overlaps;

    Checks(String label) {
        this.label = label;
    }

    /** Prints `ok` and the name, or ends the program with what was seen. */
    void check(String name, boolean truth, Object... seen) {
        if (!truth) {
            System.out.println("FAILED " + label + ": " + name + " " + Arrays.toString(seen));
            System.exit(1);
        }
        System.out.println("ok " + label + ": " + name);
    }

    /** Whether something ends with that exception. */
    static boolean isRefused(Class<? extends Exception> refusal, Deed deed) throws Exception {
        try {
            deed.run();
            return false;
        } catch (Exception error) {
            if (refusal.isInstance(error)) {
                return true;
            }
            throw error;
        }
    }

    /** Begins something on a thread of its own. */
    static <T> CompletableFuture<T> begins(Callable<T> deed) {
        CompletableFuture<T> done = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                done.complete(deed.call());
            } catch (Throwable error) {
                done.completeExceptionally(new CompletionException(error));
            }
        });
        thread.setDaemon(true);
        thread.start();
        return done;
    }

    /** A counter that loses updates unless its users, each on a thread of its own, exclude each other. */
    <W> void race(List<W> workers, Round<W> round) throws Exception {
        List<CompletableFuture<Void>> running = new ArrayList<>();
        synchronized (this) {
            count = 0;
            overlaps = 0;
        }
        for (W worker : workers) {
            running.add(begins(() -> {
                for (int done = 0; done < ROUNDS; done++) {
                    round.run(worker, this::update);
                }
                return null;
            }));
        }
        CompletableFuture<Void> all = CompletableFuture.allOf(running.toArray(CompletableFuture[]::new));
        // Whoever fails may be why the others wait: it is what is told.
        running.forEach(worker -> worker.exceptionally(error -> {
            all.completeExceptionally(error);
            return null;
        }));
        all.get(60, TimeUnit.SECONDS);
        synchronized (this) {
            check("workers never overlap", overlaps == 0, overlaps);
            check("no update is lost", count == workers.size() * ROUNDS, count);
        }
    }

    private void update() {
        int seen = enter();
        sleepMs(1);
        leave(seen);
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

    /** Waits until something holds, for ten seconds at most. */
    static boolean becomes(Callable<Boolean> truth) throws Exception {
        long start = System.nanoTime();
        while (!truth.call()) {
            if (msSince(start) > 10_000) {
                return false;
            }
            sleepMs(5);
        }
        return true;
    }

    /** Some clients count whole milliseconds of another clock: two may be missing here. */
    static long msSince(long start) {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
    }

    /** Waits until the clock that clients read says another millisecond. */
    static void passMillisecond() {
        long now = System.currentTimeMillis();
        while (System.currentTimeMillis() <= now) {
            sleepMs(1);
        }
    }

    static void sleepMs(long ms) {
        try {
            TimeUnit.MILLISECONDS.sleep(ms);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
