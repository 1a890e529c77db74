package dev.redlatch.client;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Where requests are sent: any connection, or the one of a session. Drivers implement it; they decide nothing. */
interface Line {
    /**
     * Sends a request and waits for the answer: null, Long, {@code byte[]}, or a List. A map is a list of names and values.
     *
     * @throws Failure the request has failed
     * @throws Interrupted the thread was interrupted, and the request may be
     */
    Object ask(Ask ask);

    /** Does nothing for so many nanoseconds. */
    default void pause(long nanos, boolean isInterruptible) {
        try {
            await(new CompletableFuture<Void>(), nanos, isInterruptible);
        } catch (TimeoutException passed) {
            // That was the pause.
        } catch (ExecutionException never) {
            throw new AssertionError(never);
        }
    }

    /** Waits for an answer. An interrupt that must not end it is kept for later. */
    static <T> T await(CompletableFuture<T> answer, long nanos, boolean isInterruptible)
            throws TimeoutException, ExecutionException {
        long until = Time.now() + nanos;
        boolean wasInterrupted = false;
        try {
            while (true) {
                try {
                    return answer.get(Math.max(until - Time.now(), 0), TimeUnit.NANOSECONDS);
                } catch (InterruptedException interrupt) {
                    if (isInterruptible) {
                        throw new Interrupted();
                    }
                    wasInterrupted = true;
                }
            }
        } finally {
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
