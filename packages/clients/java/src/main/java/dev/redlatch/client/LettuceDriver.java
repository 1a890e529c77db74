package dev.redlatch.client;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.RedisException;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;

/** Requests over Lettuce: one connection to each node for all of them, and others for each wait and each session. */
final class LettuceDriver implements Driver {
    private static final long BEAT = Time.ofMillis(10_000);
    private static final long CLOSING_MAX = Time.ofMillis(1_000);

    private final LettuceConnector connector;
    /** Those that are opened now, too. */
    private final Map<Object, CompletableFuture<LettuceWire>> common = new ConcurrentHashMap<>();
    private final Pool<LettuceWire> pool = new Pool<>(LettuceWire::isUsable, LettuceWire::closeNow);
    private final AtomicReference<StatefulRedisPubSubConnection<byte[], byte[]>> subscriber = new AtomicReference<>();
    /** Connections that are being opened, and the subscription. The monitor is for {@link #isClosed}. */
    private final Set<CompletableFuture<?>> underWay = ConcurrentHashMap.newKeySet();
    private volatile CompletableFuture<Void> listening = new CompletableFuture<>();
    private volatile boolean isClosed;

    LettuceDriver(LettuceConnector connector) {
        this.connector = connector;
    }

    @Override
    public Object ask(Ask ask) {
        try {
            Object node = node(ask.key, ask.connectedBy(), ask.isInterruptible);
            return ask.wait > 0 || ask.isOnNewConnection || isClosed ? askAlone(node, ask) : common(node, ask).ask(ask);
        } catch (RuntimeException error) {
            throw refreshed(error, ask.until);
        }
    }

    @Override
    public Session session(byte[] key, Runnable ended) {
        return new LettuceSession(key, ended);
    }

    @Override
    public void listen(Losses losses) {
        CompletableFuture<Void> end = new CompletableFuture<>();
        CompletableFuture<Void> ended = new CompletableFuture<>();
        synchronized (underWay) {
            if (isClosed) {
                return;
            }
            underWay.add(ended);
        }
        listening = end;
        try {
            StatefulRedisPubSubConnection<byte[], byte[]> connection = connector.subscriber();
            subscriber.set(connection);
            connection.addListener(new Listener(losses));
            connection.addListener(new RedisConnectionStateListener() {
                @Override
                public void onRedisDisconnected(RedisChannelHandler<?, ?> handler) {
                    end.complete(null);
                }
            });
            CompletableFuture<Void> subscribed =
                    connection.async().psubscribe(Texts.bytes("__lock__:*")).toCompletableFuture();
            Line.await(subscribed, Generated.ANSWER_MAX, false);
            if (!isClosed) {
                end.join();
            }
        } catch (TimeoutException late) {
            throw Failure.unanswered("the server does not answer", late);
        } catch (ExecutionException failed) {
            throw failure(failed.getCause());
        } catch (RuntimeException error) {
            throw failure(error);
        } finally {
            closeSubscriber();
            underWay.remove(ended);
            ended.complete(null);
        }
    }

    private <C> CompletableFuture<C> begin(Supplier<C> open) {
        CompletableFuture<C> attempt = Attempt.begin(open);
        underWay.add(attempt);
        attempt.whenComplete((connection, failure) -> underWay.remove(attempt));
        return attempt;
    }

    @Override
    public long beat() {
        return BEAT;
    }

    @Override
    public void close() {
        synchronized (underWay) {
            isClosed = true;
        }
        pool.close();
        common.values().forEach(each -> each.thenAccept(LettuceWire::closeNow));
        common.clear();
        closeSubscriber();
        listening.complete(null);
        awaitEnds();
    }

    /** Lettuce warns, with a stack trace, if its client is shut down while a connection is being opened. */
    private void awaitEnds() {
        long until = Time.now() + CLOSING_MAX;
        for (CompletableFuture<?> each : underWay) {
            try {
                Line.await(each, Math.max(until - Time.now(), 0), false);
            } catch (TimeoutException | ExecutionException ended) {
                // What takes longer ends by itself.
            }
        }
    }

    private void closeSubscriber() {
        StatefulRedisPubSubConnection<byte[], byte[]> connection = subscriber.getAndSet(null);
        if (connection != null) {
            connection.close();
        }
    }

    private Object node(byte[] key, long until, boolean isInterruptible) {
        if (connector.knowsNodes()) {
            return connector.node(key);
        }
        return Attempt.result(Attempt.begin(() -> connector.node(key)), until, isInterruptible);
    }

    private LettuceWire common(Object node, Ask ask) {
        CompletableFuture<LettuceWire> found = common.get(node);
        if (!isUsable(found)) {
            found = common.compute(node, (any, other) -> isUsable(other) ? other : begin(() -> connector.connect(node)));
        }
        return Attempt.result(found, ask.connectedBy(), ask.isInterruptible);
    }

    private static boolean isUsable(CompletableFuture<LettuceWire> wire) {
        return wire != null && !wire.isCompletedExceptionally() && (!wire.isDone() || wire.join().isUsable());
    }

    private LettuceWire connected(Object node, long until, boolean isInterruptible) {
        return Attempt.connection(begin(() -> connector.connect(node)), LettuceWire::closeNow, until, isInterruptible);
    }

    private Object askAlone(Object node, Ask ask) {
        LettuceWire wire = ask.isOnNewConnection ? null : pool.take(node, ask.wait > 0);
        try {
            wire = wire == null ? connected(node, ask.connectedBy(), ask.isInterruptible) : wire;
        } finally {
            if (wire == null) {
                pool.failed(ask.wait > 0);
            }
        }
        boolean isDone = false;
        try {
            Object answer = wire.ask(ask);
            isDone = true;
            return answer;
        } catch (Failure failure) {
            isDone = failure.isReply();
            throw failure;
        } finally {
            if (!isDone) {
                // Its end leaves the queue.
                wire.close();
            }
            pool.give(node, wire, ask.wait > 0);
        }
    }

    private RuntimeException refreshed(RuntimeException error, long until) {
        return Failure.refreshed(failure(error), connector.isCluster(), connector::refresh, until);
    }

    /** What an error of Lettuce means. Errors of other kinds stay what they are. */
    static RuntimeException failure(Throwable error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof RedisCommandExecutionException) {
                return Failure.reply(String.valueOf(each.getMessage()), each);
            }
        }
        if (error instanceof RedisException || !(error instanceof RuntimeException)
                || error instanceof java.util.concurrent.CancellationException) {
            return Failure.unanswered(String.valueOf(error.getMessage()), error);
        }
        return (RuntimeException) error;
    }

    private static final class Listener extends RedisPubSubAdapter<byte[], byte[]> {
        private final Losses losses;

        Listener(Losses losses) {
            this.losses = losses;
        }

        @Override
        public void message(byte[] pattern, byte[] channel, byte[] message) {
            losses.told(channel, message);
        }

        @Override
        public void psubscribed(byte[] pattern, long count) {
            losses.subscribed();
        }
    }

    private final class LettuceSession extends OneConnection<LettuceWire> {
        private final byte[] key;
        private final Runnable ended;

        LettuceSession(byte[] key, Runnable ended) {
            this.key = key;
            this.ended = ended;
        }

        @Override
        LettuceWire connect(long until) {
            LettuceWire fresh = connected(node(key, until, false), until, false);
            fresh.whenEnded(ended);
            return fresh;
        }

        @Override
        Object ask(LettuceWire wire, Ask ask) {
            return wire.ask(ask);
        }

        @Override
        void close(LettuceWire wire) {
            wire.closeNow();
        }

        @Override
        RuntimeException meaning(RuntimeException error, long until) {
            return refreshed(error, until);
        }
    }
}
