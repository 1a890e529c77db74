package dev.redlatch.client.shedlock;

import dev.redlatch.client.Held;
import dev.redlatch.client.Lock;
import dev.redlatch.client.LockHeld;
import dev.redlatch.client.LockLost;
import dev.redlatch.client.Locks;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * ShedLock with the locks of a server: a job runs in one of several processes.
 *
 * <p>{@code lockAtMostFor} is the lease, which nobody renews; {@code lockAtLeastFor} keeps the lock for the rest of
 * that time. The server counts both, so the clocks of the machines need not agree.
 */
public final class RedlatchLockProvider implements LockProvider {
    private final Locks locks;
    private final String prefix;

    /**
     * The lock of a job has the key {@code lock:shedlock:NAME}.
     *
     * @param locks the locks of a server
     */
    public RedlatchLockProvider(Locks locks) {
        this(locks, "lock:shedlock:");
    }

    /**
     * With keys of another form.
     *
     * @param locks the locks of a server
     * @param prefix what the key of a lock has before the name of the job
     */
    public RedlatchLockProvider(Locks locks, String prefix) {
        this.locks = locks;
        this.prefix = prefix;
    }

    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        try {
            Lock lock = locks.lock(prefix + configuration.getName()).lease(configuration.getLockAtMostFor()).unrenewed();
            Held held = lock.acquire();
            return Optional.of(new HeldLock(configuration, held));
        } catch (LockHeld refusal) {
            return Optional.empty();
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            return Optional.empty();
        }
    }

    private static final class HeldLock extends AbstractSimpleLock {
        private final Held held;

        HeldLock(LockConfiguration configuration, Held held) {
            super(configuration);
            this.held = held;
        }

        @Override
        protected void doUnlock() {
            Instant now = ClockProvider.now();
            Duration rest = Duration.between(now, lockConfiguration.getLockAtLeastUntil());
            try {
                if (rest.compareTo(Duration.ZERO) > 0) {
                    held.leave(rest);
                    return;
                }
            } catch (LockLost lost) {
                return;
            }
            held.release();
        }

        @Override
        protected Optional<SimpleLock> doExtend(LockConfiguration changed) {
            try {
                held.extend(changed.getLockAtMostFor());
                return Optional.of(new HeldLock(changed, held));
            } catch (LockLost lost) {
                return Optional.empty();
            }
        }
    }
}
