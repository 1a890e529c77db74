package dev.redlatch.client;

/** The server is no redlatch, and plain Redis commands cannot do this. */
public final class NotSupported extends LockException {
    private static final long serialVersionUID = 1L;

    NotSupported(String what, Throwable cause) {
        super(what + ": this takes a server with LOCK commands, which this one lacks", cause);
    }
}
