package dev.redlatch.client;

/** What a server has granted. */
final class Grant {
    /** Null from a server without LOCK commands. */
    final Long token;
    /** A moment at which the lease had not begun. */
    final long begun;
    /** The id of the session; null if the lock has a lease. */
    final byte[] session;
    /** Which of several keys was got; null if all were. */
    final byte[] key;

    Grant(Long token, long begun, byte[] session) {
        this(token, begun, session, null);
    }

    Grant(Long token, long begun, byte[] session, byte[] key) {
        this.token = token;
        this.begun = begun;
        this.session = session;
        this.key = key;
    }
}
