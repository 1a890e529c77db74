package dev.redlatch.client;

/** A library's client: requests go over whichever connection is free. */
interface Driver extends Line, AutoCloseable {
    /** A connection for one session, which is open after the first {@link Session#reconnect}. {@code ended}: it has ended. */
    Session session(byte[] key, Runnable ended);

    /**
     * Subscribes to {@code __lock__:*}, and returns when that connection ends.
     *
     * @throws Failure there was no connection, or the user lacks the right
     */
    void listen(Losses losses);

    /** How long the end of a session's connection may go unnoticed if nothing is sent on it, nanoseconds. */
    long beat();

    /** Ends the connections that are not the library's own. */
    @Override
    void close();

    /** The connection of a session. */
    interface Session extends Line, AutoCloseable {
        /** Ends the connection, and opens another one until then. */
        void reconnect(long until);

        @Override
        void close();
    }

    /** Hears what the server says of locks. */
    interface Losses {
        /** There is a new subscription: messages may have been missed. */
        void subscribed();

        /** A message of the channel {@code __lock__:key}. */
        void told(byte[] channel, byte[] message);
    }
}
