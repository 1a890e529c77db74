package dev.redlatch.client;

/** The server cannot be asked. What was held is held until its lease ends. */
public final class Unreachable extends LockException {
    private static final long serialVersionUID = 1L;

    Unreachable(String text, Throwable cause) {
        super(text, cause);
    }
}
