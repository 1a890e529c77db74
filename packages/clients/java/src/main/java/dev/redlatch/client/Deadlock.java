package dev.redlatch.client;

/** To wait would close a circle of owners, each waiting for a lock of the next. */
public final class Deadlock extends Refused {
    private static final long serialVersionUID = 1L;

    Deadlock(String text, Throwable cause) {
        super(text, cause);
    }
}
