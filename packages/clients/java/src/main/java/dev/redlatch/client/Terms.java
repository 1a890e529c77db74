package dev.redlatch.client;

import java.security.SecureRandom;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/** What a lock is taken for. Not changed once it is checked. */
final class Terms implements Cloneable {
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final long STOP_BEFORE_MAX = Time.ofMillis(1_000);
    private static final byte[] DIGITS = Texts.bytes("0123456789abcdef");

    List<byte[]> keys;
    /** One of several keys is wanted, and not all of them. */
    boolean isAny;
    /** Of several keys: the kinds of those that are not exclusive, by their positions from 1. */
    Map<Integer, Mode> modes = Map.of();
    /** Null: a random one for each acquisition. */
    byte[] owner;
    boolean hasOwnOwner;
    long lease = Generated.LEASE_DEFAULT;
    boolean hasLease;
    long wait;
    /** SHARED, REENTRANT, or PERMITS with its numbers; empty for an exclusive lock. */
    List<String> kind = List.of();
    Map<String, String> meta = Map.of();
    boolean isSession;
    /** Of a session, for how long it outlives its connection. */
    long delay;
    boolean isRenewed = true;
    /** How long before its deadline the hold is lost; null for the default. */
    Long stopBefore;
    int priority;

    Terms(List<byte[]> keys) {
        this.keys = keys;
        if (keys.isEmpty()) {
            throw new IllegalArgumentException("a lock needs a key");
        }
        if (keys.size() > Generated.KEYS_MAX) {
            throw new IllegalArgumentException("keys: " + keys.size() + ", at most " + Generated.KEYS_MAX);
        }
    }

    Terms copy() {
        try {
            return (Terms) clone();
        } catch (CloneNotSupportedException never) {
            throw new AssertionError(never);
        }
    }

    /** Throws IllegalArgumentException for what no server would grant. */
    Terms checked() {
        if (keys.size() > 1 && (!kind.isEmpty() || !meta.isEmpty() || isSession)) {
            throw new IllegalArgumentException("several keys are exclusive, or have modes; they have a lease, and no meta");
        }
        if (isSession && hasLease) {
            throw new IllegalArgumentException("a session has no lease: it ends with its connection");
        }
        checkLease(lease);
        if (priority < 0 || priority > Generated.PRIORITY_MAX) {
            throw new IllegalArgumentException("priority: " + priority + ", 0 to " + Generated.PRIORITY_MAX);
        }
        if (wait < 0 || delay < 0 || stopBefore != null && stopBefore < 0) {
            throw new IllegalArgumentException("a wait, a delay or a time to stop before is not negative");
        }
        int size = meta.entrySet().stream().mapToInt(Terms::bytesOf).sum();
        if (size > Generated.META_BYTES_MAX || meta.size() > Generated.META_FIELDS_MAX) {
            String limits = "at most " + Generated.META_BYTES_MAX + " in " + Generated.META_FIELDS_MAX;
            throw new IllegalArgumentException("meta: " + size + " bytes in " + meta.size() + " fields, " + limits);
        }
        if (owner != null) {
            checkOwner(owner);
        }
        return this;
    }

    static void checkLease(long lease) {
        if (Time.millis(lease) < 1 || lease > Generated.LEASE_MAX) {
            long days = TimeUnit.NANOSECONDS.toDays(Generated.LEASE_MAX);
            throw new IllegalArgumentException("a lease is 1 ms to " + days + " days");
        }
    }

    static void checkOwner(byte[] owner) {
        if (owner.length == 0 || owner.length > Generated.OWNER_BYTES_MAX) {
            throw new IllegalArgumentException("owner: " + owner.length + " bytes, 1 to " + Generated.OWNER_BYTES_MAX);
        }
    }

    /**
     * The terms of one acquisition: with an owner of its own, unless there is one. A reentrant lock keeps its random one.
     * Options come in any order, so it is only checked here whether two of them fit.
     */
    Terms anew() {
        mustLastLonger(held());
        if (owner != null) {
            return this;
        }
        Terms terms = copy();
        terms.owner = randomOwner();
        return terms;
    }

    Terms of(String... kind) {
        if (!this.kind.isEmpty()) {
            throw new IllegalArgumentException("a lock is one of shared, permits and reentrant");
        }
        Terms terms = copy();
        terms.kind = List.of(kind);
        return terms.checked();
    }

    /** With another mode of one of the keys. */
    Terms of(byte[] key, Mode mode) {
        int index = IntStream.range(0, keys.size()).filter(at -> Arrays.equals(keys.get(at), key)).findFirst().orElse(-1);
        if (index < 0) {
            throw new IllegalArgumentException("modes: " + Texts.text(key) + " is none of the keys");
        }
        if (keys.size() == 1) {
            return of(mode.words);
        }
        Terms terms = copy();
        terms.modes = new TreeMap<>(modes);
        if (terms.modes.put(index + 1, mode) != null) {
            throw new IllegalArgumentException("modes: " + Texts.text(key) + " has two");
        }
        return terms;
    }

    /** The terms of the one key of several that was got. */
    Terms only(byte[] key) {
        Terms terms = copy();
        terms.keys = List.of(key);
        terms.isAny = false;
        terms.modes = Map.of();
        return terms;
    }

    byte[] key() {
        return keys.get(0);
    }

    boolean isReentrant() {
        return kind.contains("REENTRANT");
    }

    /** Whether each acquisition has an owner of its own: no other is granted a lock under it. */
    boolean hasNewOwners() {
        return !hasOwnOwner && !isReentrant();
    }

    /** For how long the lock is certainly held after a sign of life. {@link Time#NEVER}: until the connection ends. */
    long held() {
        return !isSession ? lease : delay == 0 ? Time.NEVER : delay;
    }

    /** Throws IllegalArgumentException for a lease or a delay of which nothing is left to work in. */
    void mustLastLonger(long lease) {
        if (stopBefore != null && stopBefore >= lease) {
            throw new IllegalArgumentException("the time to stop before is less than the lease or the delay");
        }
    }

    /** How long before its deadline a hold of this lease is lost. */
    long stopsBefore(long lease) {
        return stopBefore != null ? stopBefore : Math.min(lease / 10, STOP_BEFORE_MAX);
    }

    /** What a server without LOCK commands cannot do of it; null if it can. */
    String lacking() {
        return isAny ? "one of several keys"
                : keys.size() > 1 ? "several keys at once"
                : !kind.isEmpty() ? kind.get(0).toLowerCase(java.util.Locale.ROOT) + " locks"
                : isSession ? "sessions"
                : priority > 0 ? "a priority"
                : !meta.isEmpty() ? "meta"
                : null;
    }

    /** LOCK.ACQUIRE, or LOCK.MACQUIRE for several keys. */
    Ask request(long wait) {
        Ask ask = keys.size() == 1
                ? new Ask(Ask.Command.ACQUIRE, key()).with(key())
                : new Ask(Ask.Command.MACQUIRE, key()).with(keys.size()).with(keys);
        ask.with(owner);
        if (isSession) {
            ask.with("SESSION").with("DELAY").with(Time.millis(delay));
        } else {
            ask.with("LEASE").with(Time.millis(lease));
        }
        if (wait > 0) {
            ask.with("WAIT").with(Time.millisUp(wait));
            ask.wait = wait;
        } else if (!isAny) {
            ask.with("JUSTTOKEN");
        }
        ask.with("WHY");
        kind.forEach(ask::with);
        if (isAny) {
            ask.with("ANY").with(1);
        }
        modes.forEach((position, mode) -> {
            ask.with("MODE").with(position);
            List.of(mode.words).forEach(ask::with);
        });
        if (priority > 0) {
            ask.with("PRIORITY").with(priority);
        }
        if (!meta.isEmpty()) {
            ask.with("META");
            meta.forEach((name, value) -> ask.with(name).with(value));
        }
        return ask;
    }

    /** Throws IllegalArgumentException for a key that is null or empty. */
    static byte[] key(String key) {
        if (key == null || key.isEmpty()) {
            throw new IllegalArgumentException("a key is not null, and not empty");
        }
        return Texts.bytes(key);
    }

    static byte[] randomOwner() {
        byte[] random = new byte[16];
        RANDOM.nextBytes(random);
        byte[] owner = new byte[32];
        for (int index = 0; index < owner.length; index++) {
            owner[index] = DIGITS[random[index / 2] >> (index % 2 * 4) & 15];
        }
        return owner;
    }

    private static int bytesOf(Map.Entry<String, String> field) {
        return Texts.bytes(field.getKey()).length + Texts.bytes(field.getValue()).length;
    }
}
