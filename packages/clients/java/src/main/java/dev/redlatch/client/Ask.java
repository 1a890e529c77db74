package dev.redlatch.client;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** A request to the server of a key. */
final class Ask {
    /** The commands that are used. */
    enum Command {
        ACQUIRE("LOCK.ACQUIRE"),
        EVAL("EVAL"),
        EVALSHA("EVALSHA"),
        EXTEND("LOCK.EXTEND"),
        GET("GET"),
        MACQUIRE("LOCK.MACQUIRE"),
        PTTL("PTTL"),
        RELEASE("LOCK.RELEASE"),
        SESSION("LOCK.SESSION"),
        SET("SET"),
        TRANSFER("LOCK.TRANSFER"),
        WHO("LOCK.WHO");

        final byte[] bytes;

        Command(String name) {
            bytes = name.getBytes(StandardCharsets.ISO_8859_1);
        }
    }

    final Command command;
    final byte[] key;
    final List<byte[]> arguments = new ArrayList<>();
    /** For how long it waits for a lock, nanoseconds; 0 if it does not. */
    long wait;
    /** When it was sent, on a connection that was open. */
    long sent;
    /** When all of it must have ended, with what it takes to connect. */
    long until;
    /** How long its answer may take, if that is less. */
    private long patience = Generated.ANSWER_MAX;
    /** Whether an interrupt ends it. */
    boolean isInterruptible;
    /** Whether it has a new connection: it is not tried again, so it must not meet one that has ended while it was idle. */
    boolean isOnNewConnection;

    Ask(Command command, byte[] key) {
        this.command = command;
        this.key = key;
    }

    Ask with(byte[] word) {
        arguments.add(word);
        return this;
    }

    Ask with(String word) {
        return with(Texts.bytes(word));
    }

    Ask with(long number) {
        return with(Texts.bytes(number));
    }

    Ask with(List<byte[]> words) {
        arguments.addAll(words);
        return this;
    }

    Ask within(long nanos) {
        patience = Math.min(patience, nanos);
        return this;
    }

    /** How long to wait for the answer: not longer than the library's limit for replies, unless it waits for a lock. */
    long limit(long ofLibrary) {
        long left = Math.max(until - Time.now(), 0);
        if (wait > 0) {
            return left;
        }
        long most = Math.min(left, patience);
        return ofLibrary <= 0 ? most : Math.min(ofLibrary, most);
    }

    /** When a connection for it must be there. */
    long connectedBy() {
        return Math.min(until, Time.now() + Generated.ANSWER_MAX);
    }
}
