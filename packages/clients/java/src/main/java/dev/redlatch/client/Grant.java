package dev.redlatch.client;

/** What a server has granted. */
final class Grant {
    /** Null from a server without LOCK commands. */
    final Long token;
    /** A moment at which the lease had not begun. */
    final long begun;
    /** The id of the session; null if the lock has a lease. */
    final byte[] session;

    Grant(Long token, long begun, byte[] session) {
        this.token = token;
        this.begun = begun;
        this.session = session;
    }
}
