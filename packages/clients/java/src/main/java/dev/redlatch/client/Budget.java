package dev.redlatch.client;

/**
 * What a call may take, counted from its start: connecting, tries and the pauses between them together.
 *
 * <p>A request that the server does not answer, or answers with an error that passes, is repeated until the wait has passed, and a
 * few times at least. All of it ends so long after the wait.
 */
final class Budget {
    /** The pauses after the first one, which is none. */
    static final long PAUSE_MIN = Time.ofMillis(50);
    private static final long PAUSE_MAX = Time.ofMillis(2_000);
    private static final int TRIES_MIN = 3;

    /** Until when the call waits for a lock. */
    final long until;
    private final long end;
    private int tries = TRIES_MIN;
    private long pause;
    int failures;
    /** A server has answered a request of the call. */
    boolean isAnswered;

    Budget(long nanos, long wait) {
        until = Time.now() + wait;
        end = until + nanos;
    }

    /** A renewal: what comes after the hold is lost is of no use. */
    static Budget ofRenewal(Held held) {
        return new Budget(Math.min(Generated.ANSWER_MAX, held.stopsAt() - Time.now()), 0);
    }

    void tryOnce() {
        tries = 1;
    }

    /** How long it is until the call must have ended. */
    long left() {
        return Math.max(end - Time.now(), 0);
    }

    /** When a request must have ended that waits so long for a lock. */
    long limit(long wait) {
        return Time.now() + Math.min(wait + Generated.ANSWER_MAX, left());
    }

    /** The pause before the next try. Throws what the caller is told if there is none. */
    long after(Failure failure) {
        failures++;
        long rest = until - Time.now();
        if (rest <= 0 && failures < tries) {
            rest = left();
        }
        if (rest <= 0 || !failure.passes()) {
            throw failure.refusal();
        }
        // The last pause is what is left, so that the last try is at the end of the wait.
        long now = Math.min(pause, rest);
        pause = Math.min(Math.max(pause * 2, PAUSE_MIN), PAUSE_MAX);
        return now;
    }
}
