package dev.redlatch.client.spring;

import dev.redlatch.client.Held;
import dev.redlatch.client.LockHeld;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;

/** A lock of a registry. The threads of this process take turns by a lock of their own, which counts how often one has it. */
final class RegistryLock implements Lock {
    private final dev.redlatch.client.Lock lock;
    private final ReentrantLock local = new ReentrantLock();
    private Held held;
    private volatile long usedAt;

    RegistryLock(dev.redlatch.client.Lock lock) {
        this.lock = lock;
    }

    RegistryLock used() {
        usedAt = System.nanoTime();
        return this;
    }

    boolean isUnusedFor(long millis) {
        boolean isUsed = local.isLocked() || local.hasQueuedThreads();
        return !isUsed && System.nanoTime() - usedAt > TimeUnit.MILLISECONDS.toNanos(millis);
    }

    @Override
    public void lock() {
        boolean wasInterrupted = false;
        while (true) {
            try {
                lockInterruptibly();
                break;
            } catch (InterruptedException interrupt) {
                wasInterrupted = true;
            }
        }
        if (wasInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        local.lockInterruptibly();
        take(ChronoUnit.FOREVER.getDuration());
    }

    @Override
    public boolean tryLock() {
        try {
            return local.tryLock() && take(Duration.ZERO);
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        long begun = System.nanoTime();
        long wait = Math.max(unit.toNanos(time), 0);
        if (!local.tryLock(wait, TimeUnit.NANOSECONDS)) {
            return false;
        }
        return take(Duration.ofNanos(Math.max(wait - (System.nanoTime() - begun), 0)));
    }

    @Override
    public void unlock() {
        if (!local.isHeldByCurrentThread()) {
            throw new IllegalMonitorStateException("this thread does not hold the lock");
        }
        Held current = held;
        boolean isLast = local.getHoldCount() == 1;
        try {
            if (isLast) {
                held = null;
                current.close();
            }
        } finally {
            used();
            local.unlock();
        }
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("locks of several processes have no conditions");
    }

    /** Takes the lock of the server, unless this thread has it. Without it, the local one is given back. */
    private boolean take(Duration wait) throws InterruptedException {
        boolean isTaken = false;
        try {
            if (held == null) {
                held = lock.waiting(wait).acquire();
            }
            isTaken = true;
        } catch (LockHeld refusal) {
            // It is told by the result.
        } finally {
            if (!isTaken) {
                local.unlock();
            }
        }
        return isTaken;
    }
}
