package dev.redlatch.client;

/** The thread was interrupted while it waited. Is told to the caller as {@link InterruptedException}. */
final class Interrupted extends RuntimeException {
    private static final long serialVersionUID = 1L;
}
