package dev.redlatch.junit;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * The clock of a namespace. It drives everything that has a time: leases, TTL, TIME, the ends of waits. Calls that move it return
 * after all that fell due has happened. Times have millisecond precision.
 */
public final class Clock {
    private final Redlatch redlatch;

    Clock(Redlatch redlatch) {
        this.redlatch = redlatch;
    }

    /** Time stands still. */
    public Instant freeze() {
        return time("FREEZE");
    }

    /** Time passes as usual, from where it stands. */
    public Instant run() {
        return time("RUN");
    }

    /** Time moves forward through every deadline in between, in order. */
    public Instant advance(Duration by) {
        return time("ADVANCE", by.toMillis());
    }

    /** Like {@link #advance}, to a moment. An earlier one is refused. */
    public Instant set(Instant to) {
        return time("SET", to.toEpochMilli());
    }

    /** Like {@link #advance}, to the next deadline. Empty if nothing is due ever. */
    public Optional<Instant> next() {
        return Optional.ofNullable(call("NEXT")).map(millis -> Instant.ofEpochMilli((Long) millis));
    }

    /** Time stands still, and goes to the next deadline whenever every client is blocked or silent for 20 ms. */
    public void auto() {
        call("AUTO", "ON");
    }

    /** The same with another time than 20 ms. {@link #freeze} ends it. */
    public void auto(Duration idle) {
        call("AUTO", "ON", "IDLE", idle.toMillis());
    }

    /** Steps the wall clock alone, as an administrator would. Leases do not change. */
    public Instant stepWall(Duration by) {
        return time("STEP-WALL", by.toMillis());
    }

    /** Its state: mode, now, lock, deadlines. Of a deadline: at, in, what, key, client, node. */
    public Map<String, Object> show() {
        return Replies.map(call("SHOW"));
    }

    /** What time it is. */
    public Instant now() {
        return Instant.ofEpochMilli((Long) show().get("now"));
    }

    private Instant time(Object... words) {
        return Instant.ofEpochMilli((Long) call(words));
    }

    private Object call(Object... words) {
        List<Object> all = new ArrayList<>(List.of("TEST.CLOCK"));
        all.addAll(Arrays.asList(words));
        return redlatch.call(all.toArray());
    }
}
