package dev.redlatch.client;

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;

/**
 * The locks of a server, over a client that you have: {@link LettuceLocks#over LettuceLocks.over(client)} or {@link
 * JedisLocks#over JedisLocks.over(client)}.
 *
 * <p>One for the whole program, for all its threads. All of its own threads are daemons.
 */
public final class Locks implements AutoCloseable {
    private static final System.Logger LOGGER = System.getLogger("dev.redlatch.client");

    private final Server server = new Server();
    private final Driver driver;
    private final Background background;
    private final AtomicLong opened = new AtomicLong();
    private volatile long budget = Generated.BUDGET_DEFAULT;
    private volatile OnUnavailable onUnavailable = OnUnavailable.CLOSED;

    Locks(Driver driver) {
        this.driver = driver;
        background = new Background(server, driver);
    }

    /**
     * The lock of a key. Nothing is sent before it is taken.
     *
     * @param key the key, which is not empty
     * @return an exclusive lock with a lease of 30 s; its methods have all options
     */
    public Lock lock(String key) {
        return new Lock(this, new Terms(List.of(Terms.key(key))));
    }

    /**
     * The locks of several keys, taken all or none, with one token: exclusive, unless {@link Lock#mode} says otherwise.
     *
     * @param keys one at least; one that is named twice counts once; in a cluster they must be of one slot
     * @return a lock, whose options are {@code lease}, {@code waiting}, {@code mode}, {@code owner}, {@code priority}, {@code
     *     unrenewed} and {@code stopBefore}
     */
    public Lock all(Collection<String> keys) {
        return new Lock(this, several(keys));
    }

    /**
     * The lock of one of several keys: the first that is free, in their order. {@link Held#key} says which. A wait ends with
     * the first that becomes free. The same owner gets the same key again, so an owner of your own holds one of them at most.
     *
     * @param keys one at least; one that is named twice counts once; in a cluster they must be of one slot
     * @return a lock with the options of {@link #all}
     */
    public Lock anyOf(Collection<String> keys) {
        Terms terms = several(keys);
        terms.isAny = terms.keys.size() > 1;
        return new Lock(this, terms);
    }

    private static Terms several(Collection<String> keys) {
        return new Terms(keys.stream().distinct().map(Terms::key).collect(Collectors.toUnmodifiableList()));
    }

    /**
     * Sets how long each call may take beside its wait: connecting, all tries and the pauses between them together. Beyond it,
     * the call throws {@link Unreachable}. 5 s if it is not set.
     *
     * @param budget more than zero
     * @return these locks
     * @throws IllegalArgumentException it is not more than zero
     */
    public Locks budget(Duration budget) {
        if (budget.isZero() || budget.isNegative()) {
            throw new IllegalArgumentException("a budget of " + budget);
        }
        this.budget = Time.nanos(budget);
        return this;
    }

    /**
     * Sets what {@link Lock#acquire} does that no server has answered within its budget. An error that a server replies is an
     * answer, and so is the refusal of a lock that is held. {@link OnUnavailable#CLOSED} if it is not set.
     *
     * @param does what it does
     * @return these locks
     */
    public Locks onUnavailable(OnUnavailable does) {
        onUnavailable = Objects.requireNonNull(does);
        return this;
    }

    /**
     * How many open holds there have been.
     *
     * @return the number: see {@link #onUnavailable}
     */
    public long opened() {
        return opened.get();
    }

    /**
     * Who holds a key.
     *
     * @param key the key
     * @return the holder; empty if nobody does
     * @throws Unreachable the server cannot be asked
     * @throws Refused the server refuses the request
     */
    public Optional<Holder> lockedBy(String key) {
        return lockedBy(Terms.key(key));
    }

    /**
     * Ends the threads and the connections of these locks. Locks that are held are not renewed any more, and sessions end.
     * The client stays open.
     */
    @Override
    public void close() {
        background.close();
    }

    Optional<Holder> lockedBy(byte[] key) {
        return Optional.ofNullable(steps(budget()).lockedBy(key));
    }

    Held acquire(Terms terms) throws InterruptedException {
        if (background.isClosed()) {
            throw new IllegalStateException("these locks are closed");
        }
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        AtomicReference<Held> holder = new AtomicReference<>();
        Driver.Session session = terms.isSession ? driver.session(terms.key(), () -> background.ended(holder.get())) : null;
        Budget whole = new Budget(budget, terms.wait);
        try {
            Grant grant = Steps.interruptible(session == null ? driver : session, server, whole).acquire(terms);
            Held held = new Held(this, terms, grant, session);
            holder.set(held);
            background.keep(held);
            return held;
        } catch (RuntimeException | Error failure) {
            if (session != null) {
                session.close();
            }
            if (failure instanceof Interrupted) {
                steps(budget()).giveUp(terms);
                throw new InterruptedException();
            }
            if (onUnavailable == OnUnavailable.OPEN && failure instanceof Unreachable && !whole.isAnswered) {
                return open(terms, failure);
            }
            throw failure;
        }
    }

    private Held open(Terms terms, Throwable failure) {
        opened.incrementAndGet();
        String text = "no server answers: this goes on without the lock " + Texts.shown(Texts.text(terms.key())) + ": ";
        LOGGER.log(System.Logger.Level.WARNING, text + failure.getMessage());
        return new Held(this, terms);
    }

    /** For requests that no interrupt ends. */
    Steps steps(Budget ofCall) {
        return Steps.of(driver, server, ofCall);
    }

    /** That of a call that begins now, and does not wait for a lock. */
    Budget budget() {
        return new Budget(budget, 0);
    }

    void keep(Held held) {
        background.keep(held);
    }

    void forget(Held held) {
        server.holds.remove(held);
    }

    /** Runs what may block. */
    void run(Runnable work) {
        background.run(work);
    }
}
