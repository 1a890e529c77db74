package dev.redlatch.junit;

/** The kinds of events of {@link Redlatch#history}: the values of their field {@code kind}. */
public final class EventKind {
    /** A client has connected. */
    public static final String CONNECT = "connect";

    /** A client has gone. */
    public static final String DISCONNECT = "disconnect";

    /** A client has sent a request. */
    public static final String REQUEST = "request";

    /** A request was answered. */
    public static final String REPLY = "reply";

    /** A lock was granted. */
    public static final String GRANTED = "granted";

    /** The lease of a lock began anew. */
    public static final String RENEWED = "renewed";

    /** A lock has ended before its lease. */
    public static final String RELEASED = "released";

    /** A lease has ended, or another key has expired. */
    public static final String EXPIRED = "expired";

    /** A client was refused a lock. */
    public static final String REFUSED = "refused";

    /** A client waits for a lock. */
    public static final String WAITS = "waits";

    /** A client would extend or release a lock that its owner does not hold. */
    public static final String MISSED = "missed";

    /** A fault has acted. */
    public static final String FAULT = "fault";

    /** A replica has taken over from its master. */
    public static final String FAILOVER = "failover";

    private EventKind() {}
}
