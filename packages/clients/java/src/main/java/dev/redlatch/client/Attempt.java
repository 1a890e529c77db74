package dev.redlatch.client;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** What a library does without a limit: done on a thread of its own, which ends by itself if nobody waits for it any more. */
final class Attempt {
    private Attempt() {}

    static <T> CompletableFuture<T> begin(Supplier<T> work) {
        CompletableFuture<T> outcome = new CompletableFuture<>();
        Thread thread = new Thread(
                () -> {
                    try {
                        outcome.complete(work.get());
                    } catch (RuntimeException | Error failure) {
                        outcome.completeExceptionally(failure);
                    }
                },
                "redlatch-client-connect");
        thread.setDaemon(true);
        thread.start();
        return outcome;
    }

    /** What the attempt comes to, or a failure that is unanswered if that is not there at {@code until}. */
    static <T> T result(CompletableFuture<T> attempt, long until, boolean isInterruptible) {
        try {
            return Line.await(attempt, Math.max(until - Time.now(), 0), isInterruptible);
        } catch (TimeoutException late) {
            throw Failure.unanswered("the server cannot be connected to in time", late);
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof RuntimeException) {
                throw (RuntimeException) failed.getCause();
            }
            throw (Error) failed.getCause();
        }
    }

    /** The connection that an attempt comes to. One that comes too late is closed. */
    static <C> C connection(CompletableFuture<C> attempt, Consumer<C> close, long until, boolean isInterruptible) {
        try {
            return result(attempt, until, isInterruptible);
        } catch (RuntimeException failure) {
            attempt.thenAccept(close);
            throw failure;
        }
    }
}
