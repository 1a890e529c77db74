package dev.redlatch.client;

/** The base of all failures of locks. */
public class LockException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    LockException(String text) {
        super(text);
    }

    LockException(String text, Throwable cause) {
        super(text, cause);
    }
}
