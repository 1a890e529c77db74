package dev.redlatch.client;

/** The database has seen a higher token: somebody else has had the lock since. The transaction must be rolled back. */
public final class StaleToken extends LockException {
    private static final long serialVersionUID = 1L;

    StaleToken(String text, Throwable cause) {
        super(text, cause);
    }
}
