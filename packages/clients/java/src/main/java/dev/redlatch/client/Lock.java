package dev.redlatch.client;

import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/**
 * A lock that can be taken. Nothing is sent before {@link #acquire}. It is immutable, and serves several threads: each option
 * returns another lock, and throws {@link IllegalArgumentException} for what no server would grant.
 */
public final class Lock {
    private final Locks locks;
    private final Terms terms;

    Lock(Locks locks, Terms terms) {
        this.locks = locks;
        this.terms = terms.checked();
    }

    /**
     * When the lock ends if it is neither renewed nor released.
     *
     * @param lease 1 ms to ten years; without this option 30 s
     * @return a lock with this option
     */
    public Lock lease(Duration lease) {
        Terms changed = terms.copy();
        changed.lease = Time.nanos(lease);
        changed.hasLease = true;
        return new Lock(locks, changed);
    }

    /**
     * How long to wait for a lock that is held, first come, first served.
     *
     * @param wait not negative; without this option a lock that is held is refused at once.
     *     {@code ChronoUnit.FOREVER.getDuration()} waits without a limit
     * @return a lock with this option
     */
    public Lock waiting(Duration wait) {
        Terms changed = terms.copy();
        changed.wait = Time.nanos(wait);
        return new Lock(locks, changed);
    }

    /**
     * Held together with other readers.
     *
     * @return a lock with this option
     */
    public Lock shared() {
        return new Lock(locks, terms.of(Mode.shared().words));
    }

    /**
     * Some permits of a semaphore.
     *
     * @param count how many are taken: 1 to the limit
     * @param limit how many there are
     * @return a lock with this option
     */
    public Lock permits(int count, int limit) {
        return new Lock(locks, terms.of(Mode.permits(count, limit).words));
    }

    /**
     * How one of the keys is taken; without this option it is exclusive.
     *
     * @param key one of the keys of the lock
     * @param mode its mode
     * @return a lock with this option
     */
    public Lock mode(String key, Mode mode) {
        return new Lock(locks, terms.of(Terms.key(key), mode));
    }

    /**
     * The rank in the queues: each step counts as having come {@code lock-priority-ageing} earlier, a setting of the server.
     *
     * @param priority 0 to 9; without this option 0
     * @return a lock with this option
     */
    public Lock priority(int priority) {
        Terms changed = terms.copy();
        changed.priority = priority;
        return new Lock(locks, changed);
    }

    /**
     * May be taken again through this object, or by the same {@link #owner}. It is free after as many releases.
     *
     * @return a lock with this option
     */
    public Lock reentrant() {
        Terms changed = terms.of("REENTRANT");
        changed.owner = changed.owner == null ? Terms.randomOwner() : changed.owner;
        return new Lock(locks, changed);
    }

    /**
     * Ends with its connection instead of with a lease.
     *
     * @return a lock with this option
     */
    public Lock session() {
        return session(Duration.ZERO);
    }

    /**
     * Ends some time after its connection instead of with a lease. If there is another connection in that time, it goes on.
     *
     * @param delay not negative
     * @return a lock with this option
     */
    public Lock session(Duration delay) {
        Terms changed = terms.copy();
        changed.isSession = true;
        changed.delay = Time.nanos(delay);
        return new Lock(locks, changed);
    }

    /**
     * What those who ask for the holder see, one field more.
     *
     * @param name for example {@code reason}
     * @param value at most 4 KiB in all fields, at most 64 fields
     * @return a lock with this option
     */
    public Lock meta(String name, String value) {
        Map<String, String> meta = new TreeMap<>(terms.meta);
        meta.put(name, value);
        return meta(meta);
    }

    /**
     * What those who ask for the holder see.
     *
     * @param meta at most 64 fields and 4 KiB
     * @return a lock with this option
     */
    public Lock meta(Map<String, String> meta) {
        Terms changed = terms.copy();
        changed.meta = Map.copyOf(meta);
        return new Lock(locks, changed);
    }

    /**
     * The name under which the lock is taken. Who knows it holds the lock, too.
     *
     * @param owner 1 to 1,024 bytes of UTF-8; without this option a random one for each acquisition
     * @return a lock with this option
     */
    public Lock owner(String owner) {
        Terms changed = terms.copy();
        changed.owner = Texts.bytes(owner);
        changed.hasOwnOwner = true;
        return new Lock(locks, changed);
    }

    /**
     * Not renewed in the background, as it is at each third of the lease without this option.
     *
     * @return a lock with this option
     */
    public Lock unrenewed() {
        Terms changed = terms.copy();
        changed.isRenewed = false;
        return new Lock(locks, changed);
    }

    /**
     * How long before its deadline the hold is lost if no renewal has succeeded by then: the time that the program has to stop.
     *
     * @param time not negative, less than the lease, or than the delay of a session. Without this option a tenth of that, at
     *     most 1 s
     * @return a lock with this option
     */
    public Lock stopBefore(Duration time) {
        Terms changed = terms.copy();
        changed.stopBefore = Time.nanos(time);
        return new Lock(locks, changed);
    }

    /**
     * Takes the lock, or waits for it. A request whose answer is lost, or that a server refuses for a moment, is repeated
     * until the wait has passed, and three times at least, but not beyond the budget of the {@link Locks#budget locks}.
     *
     * @return the lock that is held; closing it releases it. It may be {@link Held#isOpen open} if {@link Locks#onUnavailable}
     *     says so
     * @throws LockHeld somebody else holds it, and the wait has ended
     * @throws NotSupported the server has no LOCK commands, and plain ones cannot do this
     * @throws Deadlock to wait would close a circle of owners
     * @throws Refused the server refuses it for another reason
     * @throws Unreachable the server cannot be asked. If it has granted the lock, that ends with its lease
     * @throws IllegalArgumentException the hold would be lost at once: see {@link #stopBefore}
     * @throws IllegalStateException the locks are closed
     * @throws InterruptedException the thread was interrupted: it has left the queue, and given up what may have been granted
     */
    public Held acquire() throws InterruptedException {
        return locks.acquire(terms.anew());
    }

    /**
     * Who holds the (first) key.
     *
     * @return the holder; empty if nobody does
     * @throws Unreachable the server cannot be asked
     * @throws Refused the server refuses the request
     */
    public Optional<Holder> lockedBy() {
        return locks.lockedBy(terms.key());
    }
}
