package dev.redlatch.client;

import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.Arrays;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Function;

/** A lock that is held by this process. Closing it releases it. It cannot be serialised. */
public final class Held implements AutoCloseable {
    private static final System.Logger LOGGER = System.getLogger("dev.redlatch.client");

    final Terms terms;
    /** The id of the session, and its connection; null if the lock has a lease. */
    final byte[] sessionId;
    final Driver.Session session;
    /** Requests that renew go one after the other: they may name leases of different length. */
    final ReentrantLock extending = new ReentrantLock();
    /** When it is to be renewed. */
    volatile long next;
    /** False while a session has no connection. Guarded by {@link #extending}, but for the end of a connection. */
    volatile boolean isAttached = true;
    /** A release that has failed may have given it back: one of its keys was, or an answer was lost. */
    volatile boolean mayBeReleased;

    private final Locks locks;
    private final Long token;
    private final boolean isOpen;
    private final CompletableFuture<LockLost> lost = new CompletableFuture<>();
    private volatile long lease;
    private volatile long deadline;
    /** When it is lost, unless it is renewed before. */
    private volatile long stopsAt;
    /** It is left: nothing has to stop before the deadline. */
    private volatile boolean isLeaving;
    private volatile boolean isRenewed;
    private volatile boolean isReleased;
    /** The program has given it to another owner. It is lost, too. */
    private volatile boolean isHandedOver;
    private volatile String reason;
    private volatile String text;

    Held(Locks locks, Terms terms, Grant grant, Driver.Session session) {
        this.locks = locks;
        this.terms = grant.key == null ? terms : terms.only(grant.key);
        this.session = session;
        token = grant.token;
        sessionId = grant.session;
        isOpen = false;
        isRenewed = terms.isRenewed;
        lease = terms.held();
        lasts(grant.begun);
        next = session != null ? Time.now() : isRenewed ? grant.begun + renewalAfter(lease) : Time.NEVER;
    }

    /** An open hold, which nobody has granted. */
    Held(Locks locks, Terms terms) {
        this.locks = locks;
        this.terms = terms;
        session = null;
        token = null;
        sessionId = null;
        isOpen = true;
        lease = terms.held();
        deadline = Time.NEVER;
        stopsAt = Time.NEVER;
        next = Time.NEVER;
    }

    /**
     * Whether this is no lock: no server has answered, and {@link Locks#onUnavailable} says {@link OnUnavailable#OPEN}. Others may
     * work at the same time. It has no token and no deadline, is never lost, and sends nothing: {@code extend} and {@code leave}
     * do nothing, {@code release} returns false, and {@code fenced} throws {@link Unreachable}.
     *
     * @return true if it is open
     */
    public boolean isOpen() {
        return isOpen;
    }

    /**
     * The key.
     *
     * @return the key: of {@link Locks#anyOf} the one that was got, of {@link Locks#all} the first
     */
    public String key() {
        return Texts.text(terms.key());
    }

    /**
     * The name under which the lock was taken.
     *
     * @return the owner
     */
    public String owner() {
        return Texts.text(terms.owner);
    }

    /**
     * The fencing token: higher than that of every grant before.
     *
     * @return the token; empty from a server without LOCK commands
     */
    public OptionalLong token() {
        return token == null ? OptionalLong.empty() : OptionalLong.of(token);
    }

    /**
     * Until when the lock is certainly held if nobody breaks it.
     *
     * @return a moment of {@link System#nanoTime}; empty for a session that ends with its connection
     */
    public OptionalLong deadline() {
        return deadline == Time.NEVER ? OptionalLong.empty() : OptionalLong.of(Time.ofSystem(deadline));
    }

    /**
     * For how long the lock is certainly held if nobody breaks it.
     *
     * @return the time; zero once it is lost or released; {@code ChronoUnit.FOREVER.getDuration()} for a session that
     *     ends with its connection
     */
    public Duration remaining() {
        if (isOver()) {
            return Duration.ZERO;
        }
        if (deadline == Time.NEVER) {
            return ChronoUnit.FOREVER.getDuration();
        }
        return Duration.ofNanos(Math.max(deadline - Time.now(), 0));
    }

    /**
     * Tells that the lock is lost: {@link Lock#stopBefore} ahead of its deadline at the latest, whatever the network does. What
     * depends on it is run by a thread of this client, and may block.
     *
     * @return a future that is completed with the reason. It is never completed if the lock is released before
     */
    public CompletableFuture<LockLost> lost() {
        return lost;
    }

    /**
     * Whether the lock is lost, by a look at the clock and at what the server has told.
     *
     * @return true once it is lost; false once it is released
     */
    public boolean isLost() {
        return whyLost() != null;
    }

    /**
     * Throws if the lock is lost. Put it before each step that needs the lock.
     *
     * @throws LockLost it is lost
     */
    public void throwIfLost() {
        if (isLost()) {
            throw loss(reason);
        }
    }

    /**
     * Starts the lease anew.
     *
     * @throws LockLost it is lost or released
     * @throws Unreachable the server cannot be asked
     * @throws Refused the server refuses the request
     * @throws IllegalStateException it is one of a session, which has no lease
     */
    public void extend() {
        extendBy(0);
    }

    /**
     * Starts the lease anew, with another length from now on.
     *
     * @param lease 1 ms to ten years, longer than a {@link Lock#stopBefore} of your own
     * @throws LockLost it is lost or released
     * @throws Unreachable the server cannot be asked
     * @throws Refused the server refuses the request
     * @throws IllegalStateException it is one of a session, which has no lease
     */
    public void extend(Duration lease) {
        Terms changed = terms.copy();
        changed.lease = Time.nanos(lease);
        changed.checked().mustLastLonger(changed.lease);
        extendBy(changed.lease);
    }

    /**
     * Leaves the lock held for some time, and renews it no more. It counts as released for this program.
     *
     * @param rest how long; 1 ms if it is less
     * @throws LockLost it is lost or released
     * @throws Unreachable the server cannot be asked
     * @throws Refused the server refuses the request
     * @throws IllegalStateException it is one of a session, which has no lease
     */
    public void leave(Duration rest) {
        mustHaveLease();
        renewNoMore();
        isLeaving = true;
        extendBy(Math.max(Time.nanos(rest), Time.ofMillis(1)));
        synchronized (this) {
            isReleased = true;
        }
        locks.forget(this);
    }

    /**
     * Hands the lock over to an owner that waits for this lock alone, and is granted it as it has asked.
     *
     * @param owner the name of another owner: 1 to 1,024 bytes of UTF-8
     * @return the new token; empty if the session of that owner has ended in the same instant
     * @throws LockLost it is lost or released
     * @throws NotSupported the server has no LOCK commands
     * @throws Unreachable the server cannot be asked, or it is an open hold. The next renewal finds whether it was handed over
     * @throws Refused the server refuses it, such as {@code NOLEASE} for an owner that does not wait. The lock is still held
     * @throws IllegalStateException it is a lock of several keys
     */
    public OptionalLong transferTo(String owner) {
        return transfer(Texts.bytes(owner), 0);
    }

    /**
     * Hands the lock over to another owner: in the same instant it has the lock, and this hold is lost as {@code
     * transferred}. An owner that waits for this lock alone is granted it as it has asked. Another one has it for {@code
     * lease}, and asks for it under its name. {@link #close} throws nothing then.
     *
     * @param owner the name of another owner: 1 to 1,024 bytes of UTF-8
     * @param lease 1 ms to ten years
     * @return the new token; empty if the session of that owner has ended in the same instant
     * @throws LockLost it is lost or released
     * @throws NotSupported the server has no LOCK commands
     * @throws Unreachable the server cannot be asked, or it is an open hold. The next renewal finds whether it was handed over
     * @throws Refused the server refuses it: the lock is still held
     * @throws IllegalStateException it is a lock of several keys
     */
    public OptionalLong transferTo(String owner, Duration lease) {
        Terms.checkLease(Time.nanos(lease));
        return transfer(Texts.bytes(owner), Time.nanos(lease));
    }

    /**
     * Gives the lock back. An interrupt does not keep it from that.
     *
     * @return false if it was not held any more
     * @throws Unreachable the server cannot be asked: the lock ends with its lease
     * @throws Refused the server refuses the request
     */
    public boolean release() {
        synchronized (this) {
            if (isReleased || isHandedOver) {
                return false;
            }
            whyLost();
            isReleased = true;
        }
        if (isOpen) {
            return false;
        }
        locks.forget(this);
        try {
            return locks.steps(locks.budget()).release(this);
        } catch (RuntimeException | Error failure) {
            keepUnreleased();
            throw failure;
        } finally {
            if (session != null) {
                session.close();
            }
        }
    }

    /**
     * Releases the lock, unless that was done or it was handed over. A failure is logged: then the lock ends with its lease.
     *
     * @throws LockLost it was lost in the block, so that no loss goes unseen
     */
    @Override
    public void close() {
        if (isReleased || isHandedOver) {
            return;
        }
        boolean wasLost = isLost();
        try {
            // A hold that the server does not know any more was lost, too, if that was told to nobody.
            wasLost |= !release();
        } catch (LockException failure) {
            String text = key() + " is not released, and ends with its lease: " + failure.getMessage();
            LOGGER.log(System.Logger.Level.WARNING, text);
        }
        if (wasLost && !isOpen) {
            throw loss(reason == null ? Generated.NOT_HELD : reason);
        }
    }

    /**
     * First in a transaction that writes under the lock: has the database refuse it if a later holder has written.
     *
     * @param connection of SQLite, PostgreSQL, MariaDB or MySQL, whose database has what {@code redlatch fence sql} prints
     * @throws StaleToken a later holder has written: the transaction must be rolled back
     * @throws NotSupported there is no token: the server has no LOCK commands
     * @throws Unreachable it is an open hold: the database is not asked
     * @throws IllegalArgumentException the connection commits each statement by itself, or its database has no fence
     * @throws SQLException the database refuses it for another reason
     */
    public void fenced(Connection connection) throws SQLException {
        fenced(connection, key());
    }

    /**
     * Like {@link #fenced(Connection)}, under another name than the key.
     *
     * @param connection of SQLite, PostgreSQL, MariaDB or MySQL, whose database has what {@code redlatch fence sql} prints
     * @param name that of the lock in the database
     * @throws StaleToken a later holder has written: the transaction must be rolled back
     * @throws NotSupported there is no token: the server has no LOCK commands
     * @throws Unreachable it is an open hold: the database is not asked
     * @throws IllegalArgumentException the connection commits each statement by itself, or its database has no fence
     * @throws SQLException the database refuses it for another reason
     */
    public void fenced(Connection connection, String name) throws SQLException {
        if (isOpen) {
            throw new Unreachable("an open hold is no lock: the server cannot be asked", null);
        }
        if (token == null) {
            throw new NotSupported("a fencing token", null);
        }
        Fence.check(connection, name, token);
    }

    /** The length of the lease, or the delay of the session. */
    long lease() {
        return lease;
    }

    /** When it is lost, unless it is renewed before. */
    long stopsAt() {
        return stopsAt;
    }

    /** When there is something to be done for it. */
    long due() {
        return Math.min(next, stopsAt);
    }

    boolean isOf(byte[] key) {
        return terms.keys.stream().anyMatch(each -> Arrays.equals(each, key));
    }

    String tokenText() {
        return String.valueOf(token);
    }

    boolean isOver() {
        return isReleased || isLost();
    }

    void throwIfOver() {
        throwIfLost();
        if (isReleased) {
            throw loss(Generated.RELEASED);
        }
    }

    void lose(String why, String said) {
        synchronized (this) {
            if (reason != null || isReleased) {
                return;
            }
            text = said;
            reason = why;
        }
        locks.forget(this);
        locks.run(() -> {
            if (session != null) {
                session.close();
            }
            lost.complete(loss(why));
        });
    }

    synchronized void renewed(long sent, long lease) {
        // What has been told as lost stays lost, whatever the server says later.
        if (isOver()) {
            return;
        }
        // An earlier request may still be on its way, with a shorter lease, which the next one then puts right in time.
        next = isRenewed ? sent + renewalAfter(Math.min(lease, this.lease)) : Time.NEVER;
        this.lease = lease;
        lasts(sent);
    }

    /** The lease began then. */
    private void lasts(long begun) {
        deadline = lease == Time.NEVER ? Time.NEVER : begun + lease;
        stopsAt = lease == Time.NEVER || isLeaving ? deadline : deadline - terms.stopsBefore(lease);
    }

    /** With a long time to stop before it is renewed earlier, so that a renewal may be tried again. */
    private long renewalAfter(long lease) {
        return Math.min(lease / 3, (lease - terms.stopsBefore(lease)) / 2);
    }

    /** It is renewed then at the latest, if it is renewed at all. */
    synchronized void renewAt(long moment) {
        if (isRenewed) {
            next = Math.min(next, moment);
        }
    }

    /** It is lost, unless it is certainly still held: then it ends with its lease. A session ends with its connection. */
    private void keepUnreleased() {
        synchronized (this) {
            isReleased = false;
            renewNoMore();
        }
        if (session != null) {
            lose(Generated.SESSION, null);
            return;
        }
        if (mayBeReleased) {
            lose(Generated.NOT_HELD, null);
        }
        locks.keep(this);
        // Only the first loss takes it out, which may have been before.
        if (isLost()) {
            locks.forget(this);
        }
    }

    private synchronized void renewNoMore() {
        isRenewed = false;
        next = Time.NEVER;
    }

    private void mustHaveLease() {
        if (terms.isSession) {
            throw new IllegalStateException("a session has no lease: it ends with its connection");
        }
    }

    private void extendBy(long lease) {
        mustHaveLease();
        if (!isOpen) {
            inTurn(steps -> {
                steps.extendNow(this, lease);
                return null;
            });
        }
    }

    private OptionalLong transfer(byte[] owner, long lease) {
        Terms.checkOwner(owner);
        if (Arrays.equals(owner, terms.owner)) {
            throw new IllegalArgumentException("owner: a lock is handed over to another one");
        }
        if (isOpen) {
            throw new Unreachable("an open hold is no lock: the server cannot be asked", null);
        }
        if (terms.keys.size() > 1) {
            throw new IllegalStateException("only the lock of one key can be handed over");
        }
        Long handed = inTurn(steps -> {
            Long next = steps.transfer(this, owner, lease);
            isHandedOver = true;
            lose(Generated.TRANSFERRED, null);
            return next;
        });
        return handed == null ? OptionalLong.empty() : OptionalLong.of(handed);
    }

    /** Does what no renewal may come between. */
    private <T> T inTurn(Function<Steps, T> work) {
        Budget budget = locks.budget();
        if (!hasTurn(budget)) {
            throw new Unreachable("a renewal is not answered", null);
        }
        try {
            return work.apply(locks.steps(budget));
        } finally {
            extending.unlock();
        }
    }

    /** The turn to extend counts for the budget of the call. An interrupt is kept for later. */
    private boolean hasTurn(Budget budget) {
        boolean wasInterrupted = false;
        try {
            while (true) {
                try {
                    return extending.tryLock(budget.left(), TimeUnit.NANOSECONDS);
                } catch (InterruptedException interrupt) {
                    wasInterrupted = true;
                }
            }
        } finally {
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private String whyLost() {
        if (reason == null && !isReleased && Time.now() >= stopsAt) {
            lose(Generated.UNRENEWED, null);
        }
        return reason;
    }

    private LockLost loss(String why) {
        return new LockLost(key(), token(), why, text);
    }
}
