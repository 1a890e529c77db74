package dev.redlatch.client;

import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** Ends what is not done in time. One thread does so for all, which sleeps until the first moment that it knows of. */
final class Deadlines<C> {
    private final Map<C, Long> moments = new ConcurrentHashMap<>();
    private final Consumer<C> end;
    private boolean isWatching;
    /** When the thread looks next. Written under the monitor. */
    private volatile long wakesAt = Time.NEVER;

    Deadlines(Consumer<C> end) {
        this.end = end;
    }

    /** Has it ended at a moment, unless it is {@link #done} before. */
    void begin(C what, long moment) {
        moments.put(what, moment);
        if (moment < wakesAt) {
            wakeFor(moment);
        }
    }

    void done(C what) {
        moments.remove(what);
    }

    private synchronized void wakeFor(long moment) {
        wakesAt = Math.min(wakesAt, moment);
        notifyAll();
        if (!isWatching) {
            isWatching = true;
            Thread thread = new Thread(this::watch, "redlatch-client-deadlines");
            thread.setDaemon(true);
            thread.start();
        }
    }

    private synchronized void watch() {
        while (true) {
            // What begins from now on wakes this thread, and what has begun before is seen.
            wakesAt = Time.NEVER;
            wakesAt = endLate();
            if (wakesAt == Time.NEVER) {
                isWatching = false;
                return;
            }
            try {
                TimeUnit.NANOSECONDS.timedWait(this, Math.max(wakesAt - Time.now(), 1));
            } catch (InterruptedException nobodyDoes) {
                isWatching = false;
                return;
            }
        }
    }

    /** Returns the next moment. */
    private long endLate() {
        long next = Time.NEVER;
        for (Iterator<Map.Entry<C, Long>> each = moments.entrySet().iterator(); each.hasNext();) {
            Map.Entry<C, Long> entry = each.next();
            if (entry.getValue() <= Time.now()) {
                each.remove();
                end.accept(entry.getKey());
            } else {
                next = Math.min(next, entry.getValue());
            }
        }
        return next;
    }
}
