package dev.redlatch.junit;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** The faults of a namespace. */
public final class Faults {
    private final Redlatch redlatch;

    Faults(Redlatch redlatch) {
        this.redlatch = redlatch;
    }

    /** Carried out; the connection is closed without the reply. */
    public Fault dropReply(Where where) {
        return add(where, "DROP-AFTER");
    }

    /** Not carried out; the connection is closed. */
    public Fault dropBefore(Where where) {
        return add(where, "DROP-BEFORE");
    }

    /** Carried out; the connection is closed after half of the reply. */
    public Fault halfReply(Where where) {
        return add(where, "HALF-REPLY");
    }

    /** Not carried out; the connection is reset. */
    public Fault reset(Where where) {
        return add(where, "RESET");
    }

    /** Carried out later. */
    public Fault delay(Duration by, Where where) {
        return add(where, "DELAY", by.toMillis());
    }

    /** Carried out now, answered later. */
    public Fault stall(Duration by, Where where) {
        return add(where, "STALL", by.toMillis());
    }

    /** Not carried out; the error is the reply. */
    public Fault error(String text, Where where) {
        return add(where, "ERROR", text);
    }

    /** Carried out and answered; then that client is neither read nor answered for so long. */
    public Fault pauseClient(Duration by, Where where) {
        return add(where, "PAUSE-CLIENT", by.toMillis());
    }

    /** Carried out; then the leases of its keys end. */
    public Fault expireKey(Where where) {
        return add(where, "EXPIRE-KEY");
    }

    /** Carried out twice; the second reply is the reply. */
    public Fault duplicate(Where where) {
        return add(where, "DUPLICATE");
    }

    /** Adds a fault by the name and the parameters of its action. */
    public Fault add(Where where, Object... action) {
        List<Object> words = new ArrayList<>(List.of("TEST.FAULT", "ADD"));
        where.conditions.forEach((name, value) -> words.addAll(List.of(name, value)));
        words.add("DO");
        words.addAll(Arrays.asList(action));
        return new Fault(this, (Long) redlatch.call(words.toArray()));
    }

    /** All faults: id, rule, met, hits of each. */
    public List<Map<String, Object>> list() {
        return Replies.maps(redlatch.call("TEST.FAULT", "LIST"));
    }

    /** Removes all faults, and returns how many there were. */
    public long clear() {
        return (Long) redlatch.call("TEST.FAULT", "CLEAR");
    }

    boolean remove(long id) {
        return redlatch.call("TEST.FAULT", "REMOVE", id).equals(1L);
    }
}
