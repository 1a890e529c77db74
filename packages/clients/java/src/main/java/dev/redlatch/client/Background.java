package dev.redlatch.client;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Renews locks, tells their deadlines, keeps sessions, and hears of those that are lost.
 *
 * <p>One thread looks which locks are due. Requests are sent by others, at most eight of which renew at the same time.
 */
final class Background implements Driver.Losses {
    private static final System.Logger LOGGER = System.getLogger("dev.redlatch.client");
    private static final int RENEWALS_MAX = 8;
    private static final long IDLE_SECONDS_MAX = 10;
    /** The longest pause after a renewal that failed. */
    private static final long RETRY_MAX = Time.ofMillis(1_000);
    /** A session is renewed so often at least. */
    private static final long BEAT_MAX = Time.ofMillis(10_000);

    private final Server server;
    private final Driver driver;
    private final ExecutorService workers = new ThreadPoolExecutor(
            0, Integer.MAX_VALUE, IDLE_SECONDS_MAX, TimeUnit.SECONDS, new SynchronousQueue<>(),
            daemons("redlatch-client-worker"));
    private final ThreadPoolExecutor renewals = new ThreadPoolExecutor(
            RENEWALS_MAX, RENEWALS_MAX, IDLE_SECONDS_MAX, TimeUnit.SECONDS, new LinkedBlockingQueue<>(),
            daemons("redlatch-client-renewal"));
    private final AtomicBoolean isWatching = new AtomicBoolean();
    private final AtomicBoolean isListening = new AtomicBoolean();
    private volatile boolean isClosed;
    /** When the thread looks next. Written under the monitor. */
    private volatile long wakesAt = Time.NEVER;

    Background(Server server, Driver driver) {
        this.server = server;
        this.driver = driver;
        renewals.allowCoreThreadTimeOut(true);
    }

    boolean isClosed() {
        return isClosed;
    }

    void keep(Held held) {
        server.holds.add(held);
        if (!isWatching.get() && isWatching.compareAndSet(false, true)) {
            daemons("redlatch-client").newThread(this::watch).start();
        }
        wakeFor(held.due());
        if (held.token().isPresent() && !isListening.get() && isListening.compareAndSet(false, true)) {
            run(this::listen);
        }
        if (isClosed) {
            close();
        }
    }

    /** The connection of a session has ended; null if it is not granted yet. */
    void ended(Held held) {
        if (held != null && !held.isOver()) {
            held.isAttached = false;
            held.next = 0;
            wakeFor(0);
        }
    }

    void run(Runnable work) {
        workers.execute(work);
    }

    void close() {
        isClosed = true;
        for (Held held : server.holds) {
            held.next = Time.NEVER;
            if (held.session != null) {
                held.session.close();
                held.lose(Generated.SESSION, null);
            }
        }
        wakeFor(0);
        driver.close();
    }

    /** Messages may have been missed: each lock is renewed now, which shows whether it is still held. */
    @Override
    public void subscribed() {
        for (Held held : server.holds) {
            synchronized (held) {
                if (held.next != Time.NEVER) {
                    held.next = 0;
                }
            }
        }
        wakeFor(0);
    }

    @Override
    public void told(byte[] channel, byte[] message) {
        server.told(channel, message);
    }

    private void wakeFor(long moment) {
        if (moment < wakesAt) {
            synchronized (this) {
                wakesAt = Math.min(wakesAt, moment);
                notifyAll();
            }
        }
    }

    private synchronized void watch() {
        while (!isClosed || !server.holds.isEmpty()) {
            long planned = wakesAt;
            // Who adds a lock from now on wakes this thread, and who has added one before is seen.
            wakesAt = Time.NEVER;
            long now = Time.now();
            long next = Time.NEVER;
            for (Held held : server.holds) {
                if (!held.isOver()) {
                    startIfDue(held, now);
                    next = Math.min(next, held.due());
                }
            }
            // What has been planned is not put off, also if its lock is gone: else each new lock would have to wake
            // this thread.
            wakesAt = Math.min(next, planned > now ? planned : Time.NEVER);
            try {
                TimeUnit.NANOSECONDS.timedWait(this, Math.max(wakesAt - Time.now(), 1));
            } catch (InterruptedException nobodyDoes) {
                return;
            }
        }
    }

    private void startIfDue(Held held, long now) {
        if (held.next <= now && !isClosed) {
            held.next = Time.NEVER;
            if (held.session == null) {
                renewals.execute(() -> renew(held));
            } else {
                run(() -> beat(held));
            }
        }
    }

    /** One renewal. What fails is tried again, until the hold is lost. */
    private void renew(Held held) {
        held.extending.lock();
        try {
            try {
                if (!held.isOver()) {
                    Steps.of(driver, server, Budget.ofRenewal(held)).extend(held, 0);
                }
            } catch (RuntimeException failure) {
                // Also if the client was shut down.
                held.renewAt(Time.now() + Math.min(held.lease() / 30, RETRY_MAX));
            }
        } finally {
            held.extending.unlock();
        }
        wakeFor(held.due());
    }

    /** Shows that the connection of a session is there, or attaches the session to another one. */
    private void beat(Held held) {
        held.extending.lock();
        try {
            if (held.isOver()) {
                return;
            }
            Steps steps = Steps.of(held.session, server, Budget.ofRenewal(held));
            try {
                if (!held.isAttached && !attach(steps, held)) {
                    return;
                }
                steps.extend(held, 0);
                held.next = Math.min(held.next, Time.now() + Math.min(BEAT_MAX, driver.beat()));
            } catch (RuntimeException failure) {
                held.isAttached &= failure instanceof Failure && ((Failure) failure).isReply();
                held.next = Time.now() + Budget.PAUSE_MIN;
            }
        } finally {
            held.extending.unlock();
        }
        wakeFor(held.due());
    }

    private boolean attach(Steps steps, Held held) {
        held.isAttached = held.terms.delay > 0 && steps.attach(held);
        if (!held.isAttached) {
            held.lose(Generated.SESSION, null);
        }
        return held.isAttached;
    }

    /** Subscribes to all losses, which are few. Without the right to it, losses are found out by the next renewal. */
    private void listen() {
        while (!isClosed) {
            try {
                driver.listen(this);
            } catch (RuntimeException failure) {
                if (!isClosed && !(failure instanceof Failure && ((Failure) failure).passes())) {
                    String text = "losses of locks are found out by renewals only: " + failure.getMessage();
                    LOGGER.log(System.Logger.Level.WARNING, text);
                    return;
                }
            }
            if (!isClosed) {
                driver.pause(RETRY_MAX, false);
            }
        }
    }

    private static ThreadFactory daemons(String name) {
        return work -> {
            Thread thread = new Thread(work, name);
            thread.setDaemon(true);
            return thread;
        };
    }
}
