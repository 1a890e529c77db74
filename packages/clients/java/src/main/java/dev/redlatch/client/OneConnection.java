package dev.redlatch.client;

/** A session over connections of one library: one after the other, and none once it is closed. */
abstract class OneConnection<C> implements Driver.Session {
    private C connection;
    private boolean isOver;

    /** Opens a connection to the server of the session's key. */
    abstract C connect(long until);

    abstract Object ask(C connection, Ask ask);

    abstract void close(C connection);

    /** What an error of the library means. */
    abstract RuntimeException meaning(RuntimeException error, long until);

    @Override
    public final Object ask(Ask ask) {
        C current;
        synchronized (this) {
            current = connection;
        }
        try {
            if (current == null) {
                throw Failure.unanswered("the connection has ended", null);
            }
            return ask(current, ask);
        } catch (RuntimeException error) {
            throw meaning(error, ask.until);
        }
    }

    @Override
    public final void reconnect(long until) {
        replace(null);
        try {
            replace(connect(until));
        } catch (RuntimeException error) {
            throw meaning(error, until);
        }
    }

    @Override
    public final void close() {
        synchronized (this) {
            isOver = true;
        }
        replace(null);
    }

    private void replace(C fresh) {
        C old;
        boolean isLate;
        synchronized (this) {
            old = connection;
            isLate = isOver;
            connection = isLate ? null : fresh;
        }
        if (old != null) {
            close(old);
        }
        if (isLate && fresh != null) {
            close(fresh);
        }
    }
}
