package examples;

import dev.redlatch.client.Locks;
import dev.redlatch.client.spring.RedlatchLockRegistry;
import org.springframework.integration.support.locks.LockRegistry;

/** Locks of Spring Integration, for aggregators, files and leaders of several processes. */
public final class Integration {
    public static LockRegistry registry(Locks locks) {
        return new RedlatchLockRegistry(locks, "lock:orders:");
    }

    public static void close(LockRegistry registry, int order, Runnable work) throws InterruptedException {
        registry.executeLocked(order, work::run);
    }
}
