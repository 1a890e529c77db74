package dev.redlatch.client;

import java.time.Duration;
import java.util.concurrent.TimeUnit;

/** Moments and lengths of time in nanoseconds of a monotonic clock, so that they can be compared as numbers. */
final class Time {
    /** A moment that does not come. */
    static final long NEVER = Long.MAX_VALUE;

    /** Longer waits and leases count as this one, of 146 years, which may be added to any moment. */
    static final long LONGEST = Long.MAX_VALUE / 2;

    private static final long ORIGIN = System.nanoTime();

    private Time() {}

    static long now() {
        return System.nanoTime() - ORIGIN;
    }

    /** The moment as {@link System#nanoTime} has it. */
    static long ofSystem(long moment) {
        return moment + ORIGIN;
    }

    static long nanos(Duration length) {
        return length.compareTo(Duration.ofNanos(LONGEST)) > 0 ? LONGEST : length.toNanos();
    }

    static long millis(long nanos) {
        return TimeUnit.NANOSECONDS.toMillis(nanos);
    }

    /** Rounded up. */
    static long millisUp(long nanos) {
        return (nanos + 999_999) / 1_000_000;
    }

    static long ofMillis(long millis) {
        return TimeUnit.MILLISECONDS.toNanos(millis);
    }
}
