package dev.redlatch.client;

import java.util.Map;

/** The terms of a lock. Generated from crates/proto/src/lock.rs: UPDATE_README=1 cargo test --test suite -- readme */
final class Generated {
    /** Bytes of the longest owner. */
    static final int OWNER_BYTES_MAX = 1024;
    /** Bytes of all fields and values of meta. */
    static final int META_BYTES_MAX = 4096;
    /** Fields of meta. */
    static final int META_FIELDS_MAX = 64;
    /** Permits of the largest semaphore. */
    static final int PERMITS_MAX = 2147483647;
    /** Keys of one request. */
    static final int KEYS_MAX = 1000;
    /** The highest priority. The lowest is 0. */
    static final int PRIORITY_MAX = 9;
    /** The lease of a lock that names none. */
    static final long LEASE_DEFAULT = Time.ofMillis(30_000L);
    /** The longest lease. */
    static final long LEASE_MAX = Time.ofMillis(315_360_000_000L);
    /** How long a call may take beside its wait, unless the user says otherwise. */
    static final long BUDGET_DEFAULT = Time.ofMillis(5_000L);
    /** How long one request may take beside its wait. */
    static final long ANSWER_MAX = Time.ofMillis(5_000L);
    /** One request waits no longer than this. A longer wait asks again. */
    static final long WAIT_MAX = Time.ofMillis(3_600_000L);

    static final String BROKEN = "broken";
    static final String DELETED = "deleted";
    static final String EXPIRED = "expired";
    static final String FLUSHED = "flushed";
    static final String RELEASED = "released";
    static final String SESSION = "session";
    static final String TRANSFERRED = "transferred";
    static final String NOT_HELD = "not-held";
    static final String UNRENEWED = "unrenewed";

    /** What each reason for which a lock is lost means. */
    static final Map<String, String> REASONS = Map.ofEntries(
            Map.entry(BROKEN, "it was broken by an operator"),
            Map.entry(DELETED, "its key was deleted or overwritten"),
            Map.entry(EXPIRED, "its lease has ended"),
            Map.entry(FLUSHED, "all keys were removed"),
            Map.entry(RELEASED, "it was released"),
            Map.entry(SESSION, "its session has ended"),
            Map.entry(TRANSFERRED, "it was handed over to another owner"),
            Map.entry(NOT_HELD, "the server no longer knows it"),
            Map.entry(UNRENEWED, "no renewal has succeeded in time"));

    private Generated() {}
}
