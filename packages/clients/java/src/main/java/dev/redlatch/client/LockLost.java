package dev.redlatch.client;

import java.util.Optional;
import java.util.OptionalLong;

/** The lock is held no longer: somebody else may have it. */
public final class LockLost extends LockException {
    private static final long serialVersionUID = 1L;

    private final String key;
    private final Long token;
    private final String reason;
    private final String text;

    LockLost(String key, OptionalLong token, String reason, String text) {
        super(Texts.shown(key) + " is lost: " + Generated.REASONS.getOrDefault(reason, reason) + (text == null ? "" : ": " + text));
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
     * @return as the server tells it, such as {@code broken} or {@code expired}; {@code not-held}: the server does not know the
     *     lock; {@code unrenewed}: no renewal has succeeded in time, and the server may still count the lock as held;
     *     {@code released}: by this program
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
