package dev.redlatch.client;

import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;

/** The lock is held no longer: somebody else may have it. */
public final class LockLost extends LockException {
    private static final long serialVersionUID = 1L;

    private static final Map<String, String> REASONS = Map.of(
            "broken", "it was broken by an operator",
            "deleted", "its key was deleted or overwritten",
            "expired", "its lease has ended",
            "flushed", "all keys were removed",
            "released", "it was released",
            "not-held", "the server no longer knows it",
            "session", "its session has ended",
            "unrenewed", "no renewal has succeeded in time");

    private final String key;
    private final Long token;
    private final String reason;
    private final String text;

    LockLost(String key, OptionalLong token, String reason, String text) {
        super(Texts.shown(key) + " is lost: " + REASONS.getOrDefault(reason, reason) + (text == null ? "" : ": " + text));
        this.key = key;
        this.token = token.isPresent() ? token.getAsLong() : null;
        this.reason = reason;
        this.text = text;
    }

    /**
     * The key of the lock.
     *
     * @return the key; of several, the first
     */
    public String key() {
        return key;
    }

    /**
     * The fencing token that the lock had.
     *
     * @return the token; empty from a server without LOCK commands
     */
    public OptionalLong token() {
        return token == null ? OptionalLong.empty() : OptionalLong.of(token);
    }

    /**
     * Why it is lost.
     *
     * @return {@code broken}, {@code deleted}, {@code expired}, {@code flushed} or {@code session}, as the server tells it;
     *     {@code not-held}: the server does not know the lock; {@code unrenewed}: no renewal has succeeded in time, and the
     *     server may still count the lock as held; {@code released}: by this program
     */
    public String reason() {
        return reason;
    }

    /**
     * What the operator said who has broken the lock.
     *
     * @return the REASON of LOCK.BREAK, if there is one
     */
    public Optional<String> text() {
        return Optional.ofNullable(text);
    }
}
