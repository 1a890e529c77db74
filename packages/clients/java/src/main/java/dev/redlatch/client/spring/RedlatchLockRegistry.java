package dev.redlatch.client.spring;

import dev.redlatch.client.Locks;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.Lock;
import org.springframework.integration.support.locks.ExpirableLockRegistry;

/**
 * The lock registry of Spring Integration with the locks of a server: reentrant, owned by a thread, renewed in the
 * background.
 *
 * <p>{@code lock()} waits in the queue of the server. {@code unlock()} throws {@link dev.redlatch.client.LockLost} if the
 * lock was lost in the meantime.
 */
public final class RedlatchLockRegistry implements ExpirableLockRegistry {
    private final Locks locks;
    private final String prefix;
    private final ConcurrentHashMap<String, RegistryLock> known = new ConcurrentHashMap<>();

    /**
     * A registry.
     *
     * @param locks the locks of a server
     * @param prefix what the key of a lock has before the text of the object that it is obtained for, as {@code lock:orders:}
     */
    public RedlatchLockRegistry(Locks locks, String prefix) {
        this.locks = locks;
        this.prefix = prefix;
    }

    @Override
    public Lock obtain(Object lockKey) {
        return known.compute(prefix + lockKey, (key, found) -> {
            RegistryLock lock = found == null ? new RegistryLock(locks.lock(key)) : found;
            return lock.used();
        });
    }

    @Override
    public void expireUnusedOlderThan(long age) {
        known.values().removeIf(each -> each.isUnusedFor(age));
    }
}
