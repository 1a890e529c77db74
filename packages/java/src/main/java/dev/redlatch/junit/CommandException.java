package dev.redlatch.junit;

/** A command that the server refused. */
public final class CommandException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    CommandException(String text) {
        super(text);
    }

    /** The first word of the message. */
    public String code() {
        return getMessage().split(" ", 2)[0];
    }
}
