package dev.redlatch.client;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisCommandTimeoutException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.RedisException;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * One connection of Lettuce. It ends with its first socket: Lettuce would send requests again over the next one, and count a
 * reentrant lock twice.
 */
final class LettuceWire implements RedisConnectionStateListener {
    private static final Map<Ask.Command, ProtocolKeyword> KEYWORDS = keywords();
    private static final long CLOSING_MAX = Time.ofMillis(1_000);

    private final StatefulRedisConnection<byte[], byte[]> connection;
    private final StatefulConnection<?, ?> whole;
    /** The user's limit for replies. */
    private final Duration timeout;
    private final Set<CompletableFuture<?>> pending = ConcurrentHashMap.newKeySet();
    private final CompletableFuture<Void> closed = new CompletableFuture<>();
    private final AtomicBoolean isClosing = new AtomicBoolean();
    private volatile boolean hasEnded;
    private volatile Runnable ended = () -> {};

    /** {@code whole}: what is closed with it; null for the connection itself. */
    LettuceWire(StatefulRedisConnection<byte[], byte[]> connection, StatefulConnection<?, ?> whole) {
        this.connection = connection;
        this.whole = whole == null ? connection : whole;
        timeout = connection.getTimeout();
        connection.addListener(this);
        hasEnded = !connection.isOpen();
    }

    boolean isUsable() {
        return !hasEnded;
    }

    /** What is done when the connection has ended by itself. */
    void whenEnded(Runnable work) {
        ended = work;
        if (hasEnded) {
            work.run();
        }
    }

    /** Sends a request and waits for its answer. Closes the connection if that does not come, or is not waited for. */
    Object ask(Ask ask) {
        CommandArgs<byte[], byte[]> arguments = new CommandArgs<>(ByteArrayCodec.INSTANCE);
        for (byte[] argument : ask.arguments) {
            arguments.add(argument);
        }
        long limit = ask.limit(timeout.toNanos());
        if (ask.wait > 0) {
            // This connection is for the wait alone.
            connection.setTimeout(Duration.ofNanos(limit).plus(timeout));
        }
        ask.sent = Time.now();
        CompletableFuture<Object> answer = connection.async()
                .dispatch(KEYWORDS.get(ask.command), new Output(), arguments)
                .toCompletableFuture();
        pending.add(answer);
        try {
            if (hasEnded) {
                answer.completeExceptionally(new RedisException("the connection has ended"));
            }
            return Line.await(answer, limit, ask.isInterruptible);
        } catch (TimeoutException late) {
            close();
            throw Failure.unanswered("the server does not answer", late);
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof RedisCommandTimeoutException) {
                close();
            }
            throw LettuceDriver.failure(failed.getCause());
        } finally {
            pending.remove(answer);
            if (ask.wait > 0) {
                connection.setTimeout(timeout);
            }
        }
    }

    /** Closes the connection, and waits a moment for that. Not for the threads of Lettuce. */
    void closeNow() {
        close();
        try {
            Line.await(closed, CLOSING_MAX, false);
        } catch (TimeoutException | ExecutionException late) {
            // It is closed in the background.
        }
    }

    void close() {
        hasEnded = true;
        if (isClosing.compareAndSet(false, true)) {
            whole.closeAsync().whenComplete((nothing, failure) -> closed.complete(null));
        }
        pending.forEach(each -> each.completeExceptionally(new RedisException("the connection has ended")));
    }

    @Override
    public void onRedisDisconnected(RedisChannelHandler<?, ?> connection) {
        boolean wasClosed = hasEnded;
        close();
        if (!wasClosed) {
            ended.run();
        }
    }

    private static Map<Ask.Command, ProtocolKeyword> keywords() {
        Map<Ask.Command, ProtocolKeyword> keywords = new EnumMap<>(Ask.Command.class);
        for (Ask.Command command : Ask.Command.values()) {
            keywords.put(command, new Keyword(command));
        }
        return keywords;
    }

    private static final class Keyword implements ProtocolKeyword {
        private final Ask.Command command;

        Keyword(Ask.Command command) {
            this.command = command;
        }

        @Override
        public byte[] getBytes() {
            return command.bytes;
        }

        // Before Lettuce 6.5 there is no default.
        @Override
        @Deprecated
        public String name() {
            return command.toString();
        }

        @Override
        public String toString() {
            return command.toString();
        }
    }

    /** Any answer. A map becomes a list of names and values. */
    private static final class Output extends CommandOutput<byte[], byte[], Object> {
        private final Deque<List<Object>> open = new ArrayDeque<>();
        private final Deque<Integer> sizes = new ArrayDeque<>();

        Output() {
            super(ByteArrayCodec.INSTANCE, null);
        }

        @Override
        public void set(ByteBuffer bytes) {
            byte[] copy = null;
            if (bytes != null) {
                copy = new byte[bytes.remaining()];
                bytes.get(copy);
            }
            add(copy);
        }

        @Override
        public void set(long number) {
            add(number);
        }

        @Override
        public void set(double number) {
            add(number);
        }

        @Override
        public void set(boolean value) {
            add(value);
        }

        @Override
        public void multi(int count) {
            if (count < 0) {
                add(null);
                return;
            }
            List<Object> list = new ArrayList<>(count);
            put(list);
            open.push(list);
            sizes.push(count);
            closeFull();
        }

        private void add(Object value) {
            put(value);
            closeFull();
        }

        private void put(Object value) {
            if (open.isEmpty()) {
                output = value;
            } else {
                open.peek().add(value);
            }
        }

        private void closeFull() {
            while (!open.isEmpty() && open.peek().size() == sizes.peek()) {
                open.pop();
                sizes.pop();
            }
        }
    }
}
