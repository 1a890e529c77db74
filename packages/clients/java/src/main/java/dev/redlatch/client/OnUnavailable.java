package dev.redlatch.client;

/** What {@link Lock#acquire} does that no server has answered within its budget. */
public enum OnUnavailable {
    /** It throws {@link Unreachable}. This is the default. */
    CLOSED,
    /** It returns an open hold, which is no lock: see {@link Held#isOpen}. */
    OPEN
}
