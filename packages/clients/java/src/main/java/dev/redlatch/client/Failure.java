package dev.redlatch.client;

import java.util.List;

/** A request has failed. Drivers make it of the errors of their library; the caller is told another exception. */
final class Failure extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private static final List<String> PASSING = List.of(
            "ASK", "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "OOM", "QUARANTINE", "READONLY",
            "SHUTDOWN", "TRYAGAIN", "UNBLOCKED");

    private final boolean isReply;

    private Failure(boolean isReply, String text, Throwable cause) {
        super(text, cause);
        this.isReply = isReply;
    }

    /** The server has answered with this error. */
    static Failure reply(String text, Throwable cause) {
        return new Failure(true, text, cause);
    }

    /** There was no answer. */
    static Failure unanswered(String text, Throwable cause) {
        return new Failure(false, text, cause);
    }

    /** The same error. If another node may serve the key by now, {@code refresh} looks for it, and is waited for until then. */
    static RuntimeException refreshed(RuntimeException error, boolean isCluster, Runnable refresh, long until) {
        if (isCluster && error instanceof Failure && ((Failure) error).isOfNode()) {
            try {
                Attempt.result(Attempt.begin(() -> {
                    refresh.run();
                    return null;
                }), until, false);
            } catch (RuntimeException unreachable) {
                error.addSuppressed(unreachable);
            }
        }
        return error;
    }

    boolean isReply() {
        return isReply;
    }

    /** Whether the server has no LOCK commands. */
    boolean isUnknownCommand() {
        return isReply && getMessage().regionMatches(true, 0, "ERR unknown command", 0, 19);
    }

    /** Whether the same request may be served in a moment. */
    boolean passes() {
        return !isReply || PASSING.contains(code());
    }

    /** Whether another node may serve the key by now. */
    boolean isOfNode() {
        return !isReply || code().equals("MOVED") || code().equals("CLUSTERDOWN");
    }

    /** The first word of an error. */
    String code() {
        return isReply ? getMessage().split(" ", 2)[0] : "";
    }

    /** What the caller is told. */
    LockException refusal() {
        Throwable origin = getCause() == null ? this : getCause();
        if (!isReply) {
            return new Unreachable(getMessage(), origin);
        }
        return code().equals("DEADLOCK") ? new Deadlock(getMessage(), origin) : new Refused(getMessage(), origin);
    }
}
