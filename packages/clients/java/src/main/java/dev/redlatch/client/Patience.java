package dev.redlatch.client;

/** How often a request is repeated that the server does not answer, or answers with an error that passes. */
final class Patience {
    private static final int TRIES_MIN = 3;
    /** The pauses after the first one, which is none. */
    static final long PAUSE_MIN = Time.ofMillis(50);
    private static final long PAUSE_MAX = Time.ofMillis(2_000);

    private final long until;
    private long pause;
    int failures;

    Patience(long until) {
        this.until = until;
    }

    /** The pause before the next try. Throws what the caller is told if there is none. */
    long after(Failure failure) {
        failures++;
        boolean isLast = failures >= TRIES_MIN && Time.now() + pause >= until;
        if (isLast || !failure.passes()) {
            throw failure.refusal();
        }
        long now = pause;
        pause = Math.min(Math.max(pause * 2, PAUSE_MIN), PAUSE_MAX);
        return now;
    }
}
