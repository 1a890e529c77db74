import java.io.IOException;
import java.util.concurrent.Callable;

/** What a program and the test of a cluster tell each other: the test ends the leader while the program holds a lock. */
final class Takeover {
    /** The name of the cluster. */
    static final String NAME = "mymaster";

    private static final long PATIENCE_MS = 60_000;

    private Takeover() {}

    /** Says that a lock is held, and waits until the leader has been ended. */
    static void holds() throws IOException {
        System.out.println("holds");
        while (System.in.read() != '\n') {
            // Only the end of the line counts.
        }
    }

    /** Asks again until no exception comes of it. */
    static <T> T patiently(Callable<T> deed) throws Exception {
        long start = System.nanoTime();
        while (true) {
            try {
                return deed.call();
            } catch (Exception error) {
                if (Checks.msSince(start) > PATIENCE_MS) {
                    throw error;
                }
                Checks.sleepMs(20);
            }
        }
    }

    /** Says that the lock is still held, and where the leader listens. */
    static void still(Object port) {
        System.out.println("still " + port);
    }
}
