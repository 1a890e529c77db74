import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.api.sync.RedisClusterCommands;
import io.lettuce.core.protocol.ProtocolVersion;
import java.time.Duration;
import java.util.List;

/** Lettuce in both protocols and in cluster mode: SET NX PX, EVAL for the release, EVALSHA for the extension. */
final class LettuceLock implements HandLocks.Lock {
    private final AutoCloseable connection;
    private final RedisClusterCommands<String, String> commands;
    private final String extend;

    LettuceLock(StatefulRedisConnection<String, String> connection) {
        this(connection, connection.sync());
    }

    private LettuceLock(StatefulRedisClusterConnection<String, String> connection) {
        this(connection, connection.sync());
    }

    private LettuceLock(AutoCloseable connection, RedisClusterCommands<String, String> commands) {
        this.connection = connection;
        this.commands = commands;
        extend = commands.scriptLoad(HandLocks.EXTEND);
    }

    /** With the argument {@code cluster}, in cluster mode. */
    public static void main(String[] args) throws Exception {
        if (List.of(args).contains("cluster")) {
            RedisClusterClient client =
                    RedisClusterClient.create(RedisURI.create(HandLocks.HOST, HandLocks.PORT));
            new HandLocks("cluster", () -> new LettuceLock(client.connect())).run();
            client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
            System.out.println("done");
            return;
        }
        for (ProtocolVersion protocol : List.of(ProtocolVersion.RESP2, ProtocolVersion.RESP3)) {
            RedisClient client = RedisClient.create(RedisURI.create(HandLocks.HOST, HandLocks.PORT));
            client.setOptions(ClientOptions.builder().protocolVersion(protocol).build());
            new HandLocks(protocol.name(), () -> new LettuceLock(client.connect())).run();
            client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        }
        System.out.println("done");
    }

    @Override
    public boolean acquire(String key, String token, long leaseMs) {
        return "OK".equals(commands.set(key, token, SetArgs.Builder.nx().px(leaseMs)));
    }

    @Override
    public boolean release(String key, String token) {
        Long reply = commands.eval(HandLocks.RELEASE, ScriptOutputType.INTEGER, new String[] {key}, token);
        return reply == 1;
    }

    @Override
    public boolean extend(String key, String token, long leaseMs) {
        String lease = Long.toString(leaseMs);
        Long reply = commands.evalsha(extend, ScriptOutputType.INTEGER, new String[] {key}, token, lease);
        return reply == 1;
    }

    @Override
    public long remainingMs(String key) {
        return commands.pttl(key);
    }

    @Override
    public String holder(String key) {
        return commands.get(key);
    }

    @Override
    public void close() {
        try {
            connection.close();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }
}
