import java.util.concurrent.Callable;
import java.util.function.Predicate;

/** A lock by hand that outlives the node that has granted it. */
final class SentinelLock {
    /** The client, which finds the leader. */
    interface Leader {
        boolean says(Predicate<HandLocks.Lock> request) throws Exception;
    }

    private static final String KEY = "by-sentinel";
    private static final long LEASE_MS = 60_000;

    private SentinelLock() {}

    static void run(String label, Leader leader, Callable<Object> port) throws Exception {
        Checks checks = new Checks(label);
        checks.check("acquire", leader.says(lock -> lock.acquire(KEY, "me", LEASE_MS)));
        Takeover.holds();
        boolean isHeld = Takeover.patiently(() -> leader.says(lock -> "me".equals(lock.holder(KEY))));
        checks.check("the owner still holds it", isHeld);
        Takeover.still(port.call());
        checks.check("another is refused", !leader.says(lock -> lock.acquire(KEY, "other", LEASE_MS)));
        checks.check("release", leader.says(lock -> lock.release(KEY, "me")));
        checks.check("it is granted again", leader.says(lock -> lock.acquire(KEY, "other", LEASE_MS)));
    }
}
