import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RedissonClient;

/** A thread of a client: what Redisson takes the owner of a lock to be. */
final class Owner implements AutoCloseable {
    /** Something to do that may fail. */
    interface Deed {
        void run() throws Exception;
    }

    final RedissonClient client;
    private final ExecutorService thread = Executors.newSingleThreadExecutor(task -> {
        Thread thread = new Thread(task);
        // Some are left waiting on purpose; they must not keep the program from ending.
        thread.setDaemon(true);
        return thread;
    });

    Owner(RedissonClient client) {
        this.client = client;
    }

    /** Begins something on this owner's thread. */
    <T> Future<T> begins(Callable<T> deed) {
        return thread.submit(deed);
    }

    /** Does something on this owner's thread, to its end. */
    <T> T gets(Callable<T> deed) throws Exception {
        return ended(begins(deed));
    }

    /** Does something on this owner's thread, to its end. */
    void does(Deed deed) throws Exception {
        gets(() -> {
            deed.run();
            return null;
        });
    }

    /** Whether a deed of this owner ends with that exception. */
    boolean isRefused(Class<? extends Exception> refusal, Deed deed) throws Exception {
        return gets(() -> {
            try {
                deed.run();
                return false;
            } catch (Exception error) {
                if (refusal.isInstance(error)) {
                    return true;
                }
                throw error;
            }
        });
    }

    /** What came of a deed; it has half a minute to end. */
    static <T> T ended(Future<T> deed) throws Exception {
        try {
            return deed.get(30, TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            throw error.getCause() instanceof Exception cause ? cause : error;
        }
    }

    @Override
    public void close() {
        thread.shutdownNow();
    }
}
