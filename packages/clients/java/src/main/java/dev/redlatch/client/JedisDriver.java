package dev.redlatch.client;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeoutException;
import redis.clients.jedis.BinaryJedisPubSub;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.util.KeyValue;

/** Requests over Jedis, each on a connection that serves no other one in the meantime. */
final class JedisDriver implements Driver {
    /** Jedis cannot tell that a connection has ended on which nothing is sent. */
    private static final long BEAT = Time.ofMillis(1_000);
    private static final Map<Ask.Command, ProtocolCommand> COMMANDS = commands();
    private static final List<byte[]> PUSHES = List.of(Texts.bytes("lock-lost"), Texts.bytes("lock-contended"));

    private final JedisConnector connector;
    private final Pool<Connection> pool = new Pool<>(each -> each.isConnected() && !each.isBroken(), JedisDriver::close);
    /** Waits are read by threads of their own, because an interrupt does not end a read. */
    private final Executor readers = work -> {
        Thread reader = new Thread(work, "redlatch-client-wait");
        reader.setDaemon(true);
        reader.start();
    };
    /** Of requests: the limit of a socket is one for each read, and an answer may take many of them. */
    private final Deadlines<Connection> deadlines = new Deadlines<>(JedisDriver::close);
    private final Set<Connection> listening = ConcurrentHashMap.newKeySet();
    private volatile boolean isClosed;

    JedisDriver(JedisConnector connector) {
        this.connector = connector;
    }

    @Override
    public Object ask(Ask ask) {
        try {
            return ask(connector.node(ask.key), ask);
        } catch (RuntimeException error) {
            throw refreshed(error, ask.until);
        }
    }

    @Override
    public Session session(byte[] key, Runnable ended) {
        return new JedisSession(key);
    }

    @Override
    public void listen(Losses losses) {
        Connection connection = null;
        try {
            connection = connector.connect(connector.anyNode());
            listening.add(connection);
            if (!isClosed) {
                new Listener(losses).proceedWithPatterns(connection, Texts.bytes("__lock__:*"));
            }
        } catch (RuntimeException error) {
            throw failure(error);
        } finally {
            if (connection != null) {
                listening.remove(connection);
                close(connection);
            }
        }
    }

    @Override
    public long beat() {
        return BEAT;
    }

    @Override
    public void close() {
        isClosed = true;
        pool.close();
        listening.forEach(JedisDriver::close);
    }

    private Object ask(redis.clients.jedis.util.Pool<Connection> node, Ask ask) {
        Connection connection = ask.isOnNewConnection ? null : pool.take(node, ask.wait > 0);
        try {
            connection = connection == null ? connected(node, ask.connectedBy(), ask.isInterruptible) : connection;
        } finally {
            if (connection == null) {
                pool.failed(ask.wait > 0);
            }
        }
        try {
            return exchange(connection, ask);
        } catch (Failure failure) {
            if (!failure.isReply()) {
                // The others may have ended with their server, too.
                pool.clear();
            }
            throw failure;
        } finally {
            pool.give(node, connection, ask.wait > 0);
        }
    }

    private Connection connected(redis.clients.jedis.util.Pool<Connection> node, long until, boolean isInterruptible) {
        CompletableFuture<Connection> attempt = Attempt.begin(() -> connector.connect(node));
        return Attempt.connection(attempt, JedisDriver::close, until, isInterruptible);
    }

    /** Sends a request and waits for its answer. Closes the connection if that does not come, or is not waited for. */
    private Object exchange(Connection connection, Ask ask) {
        int ofClient = connection.getSoTimeout();
        try {
            if (ask.wait == 0) {
                deadlines.begin(connection, Time.now() + ask.limit(Time.ofMillis(ofClient)));
                try {
                    return read(connection, ask, ofClient);
                } finally {
                    deadlines.done(connection);
                }
            }
            CompletableFuture<Object> answer = CompletableFuture.supplyAsync(() -> read(connection, ask, ofClient), readers);
            return Line.await(answer, Math.max(ask.until - Time.now(), 0), ask.isInterruptible);
        } catch (Interrupted interrupt) {
            // Its end leaves the queue.
            close(connection);
            throw interrupt;
        } catch (ExecutionException failed) {
            throw closed(connection, failure(failed.getCause()));
        } catch (TimeoutException late) {
            throw closed(connection, Failure.unanswered("the server does not answer", late));
        } catch (RuntimeException error) {
            throw closed(connection, failure(error));
        }
    }

    private static Object read(Connection connection, Ask ask, int ofClient) {
        int limit = (int) Math.max(Time.millisUp(ask.limit(Time.ofMillis(ofClient))), 1);
        CommandArguments arguments = new CommandArguments(COMMANDS.get(ask.command));
        ask.arguments.forEach(arguments::add);
        if (limit != ofClient) {
            connection.setSoTimeout(limit);
        }
        try {
            ask.sent = Time.now();
            Object answer = connection.executeCommand(arguments);
            while (isPush(answer)) {
                answer = connection.getOne();
            }
            return flat(answer);
        } finally {
            if (limit != ofClient && connection.isConnected()) {
                connection.setSoTimeout(ofClient);
            }
        }
    }

    /** With RESP3, what the server tells by itself comes before the answer. The subscription has told it already. */
    private static boolean isPush(Object answer) {
        if (!(answer instanceof List) || ((List<?>) answer).isEmpty() || !(((List<?>) answer).get(0) instanceof byte[])) {
            return false;
        }
        byte[] first = (byte[]) ((List<?>) answer).get(0);
        return PUSHES.stream().anyMatch(each -> Arrays.equals(each, first));
    }

    /** With maps as lists of names and values. */
    private static Object flat(Object answer) {
        if (!(answer instanceof List)) {
            return answer;
        }
        List<Object> parts = new ArrayList<>();
        for (Object part : (List<?>) answer) {
            if (part instanceof KeyValue) {
                parts.add(((KeyValue<?, ?>) part).getKey());
                parts.add(flat(((KeyValue<?, ?>) part).getValue()));
            } else {
                parts.add(flat(part));
            }
        }
        return parts;
    }

    private static RuntimeException closed(Connection connection, RuntimeException error) {
        if (!(error instanceof Failure) || !((Failure) error).isReply()) {
            close(connection);
        }
        return error;
    }

    private static void close(Connection connection) {
        try {
            connection.disconnect();
        } catch (RuntimeException ended) {
            // It is closed.
        }
    }

    private RuntimeException refreshed(RuntimeException error, long until) {
        return Failure.refreshed(failure(error), connector.isCluster(), connector::refresh, until);
    }

    /** What an error of Jedis means. Errors of other kinds stay what they are. */
    private static RuntimeException failure(Throwable error) {
        Throwable origin = error.getCause() instanceof JedisDataException ? error.getCause() : error;
        if (origin instanceof JedisDataException) {
            return Failure.reply(String.valueOf(origin.getMessage()), origin);
        }
        if (origin instanceof JedisException || !(origin instanceof RuntimeException)) {
            return Failure.unanswered(String.valueOf(origin.getMessage()), origin);
        }
        return (RuntimeException) origin;
    }

    private static Map<Ask.Command, ProtocolCommand> commands() {
        Map<Ask.Command, ProtocolCommand> commands = new EnumMap<>(Ask.Command.class);
        for (Ask.Command command : Ask.Command.values()) {
            commands.put(command, () -> command.bytes);
        }
        return commands;
    }

    private static final class Listener extends BinaryJedisPubSub {
        private final Losses losses;

        Listener(Losses losses) {
            this.losses = losses;
        }

        @Override
        public void onPMessage(byte[] pattern, byte[] channel, byte[] message) {
            losses.told(channel, message);
        }

        @Override
        public void onPSubscribe(byte[] pattern, int count) {
            losses.subscribed();
        }
    }

    private final class JedisSession extends OneConnection<Connection> {
        private final byte[] key;

        JedisSession(byte[] key) {
            this.key = key;
        }

        @Override
        Connection connect(long until) {
            return connected(connector.node(key), until, false);
        }

        @Override
        Object ask(Connection connection, Ask ask) {
            return exchange(connection, ask);
        }

        @Override
        void close(Connection connection) {
            JedisDriver.close(connection);
        }

        @Override
        RuntimeException meaning(RuntimeException error, long until) {
            return refreshed(error, until);
        }
    }
}
