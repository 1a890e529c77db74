package dev.redlatch.client;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.function.Consumer;
import java.util.function.Predicate;

/** Connections that serve one request at a time: those that are idle are kept, some for each node. */
final class Pool<C> {
    private static final int IDLE_MAX = 32;
    private static final int WAITS_MAX = 256;

    private final Map<Object, Deque<C>> idle = new HashMap<>();
    /** Only waits need one: a release must never wait for a wait. */
    private final Semaphore permits = new Semaphore(WAITS_MAX);
    private final Predicate<C> isUsable;
    private final Consumer<C> close;
    private boolean isClosed;

    Pool(Predicate<C> isUsable, Consumer<C> close) {
        this.isUsable = isUsable;
        this.close = close;
    }

    /** An idle connection, or null: then the caller makes one, and gives it back, or calls {@link #failed}. */
    C take(Object node, boolean isWait) {
        if (isWait && !permits.tryAcquire()) {
            throw Failure.unanswered(WAITS_MAX + " locks are waited for already", null);
        }
        while (true) {
            C found;
            synchronized (this) {
                Deque<C> mine = idle.get(node);
                found = mine == null ? null : mine.pollLast();
            }
            if (found == null || isUsable.test(found)) {
                return found;
            }
            close.accept(found);
        }
    }

    /** No connection could be made. */
    void failed(boolean isWait) {
        if (isWait) {
            permits.release();
        }
    }

    /** Has served a request, or is closed if that failed. */
    void give(Object node, C connection, boolean isWait) {
        failed(isWait);
        boolean isKept;
        synchronized (this) {
            Deque<C> mine = idle.computeIfAbsent(node, any -> new ArrayDeque<>());
            isKept = !isClosed && mine.size() < IDLE_MAX && isUsable.test(connection);
            if (isKept) {
                mine.addLast(connection);
            }
        }
        if (!isKept) {
            close.accept(connection);
        }
    }

    /** Closes all that are idle: their server may have ended. */
    void clear() {
        Deque<C> all = new ArrayDeque<>();
        synchronized (this) {
            idle.values().forEach(all::addAll);
            idle.clear();
        }
        all.forEach(close);
    }

    /** Keeps none from now on. */
    void close() {
        synchronized (this) {
            isClosed = true;
        }
        clear();
    }
}
