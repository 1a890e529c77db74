package dev.redlatch.client;

import java.util.Optional;

/** Somebody else holds the lock, and the wait has ended. The text says who, why and since when, and how to break it. */
public final class LockHeld extends LockException {
    private static final long serialVersionUID = 1L;

    private final String key;
    private final transient Holder holder;

    LockHeld(String key, Holder holder) {
        super(textOf(key, holder));
        this.key = key;
        this.holder = holder;
    }

    /**
     * The key that is held.
     *
     * @return the key; of several, the first that is held
     */
    public String key() {
        return key;
    }

    /**
     * Who holds the lock.
     *
     * @return the holder; empty if it was released in the meantime, the server does not tell, or this was deserialized
     */
    public Optional<Holder> holder() {
        return Optional.ofNullable(holder);
    }

    private static String textOf(String key, Holder holder) {
        String text = Texts.shown(key) + " is held";
        if (holder == null) {
            return text;
        }
        text += "\n" + holder;
        if (holder.token().isPresent()) {
            String quoted = Texts.quoted(Texts.shown(key));
            text += "\nTo take it by force: redlatch break " + quoted + " --token " + holder.token().getAsLong();
        }
        return text;
    }
}
