import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.masterreplica.MasterReplica;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;

/**
 * Lettuce in Sentinel mode. The first argument is `plain`, or `topology` for a connection that knows all nodes and finds another
 * leader by `+switch-master` alone. The others are the ports of the nodes.
 */
final class LettuceSentinel {
    private LettuceSentinel() {}

    public static void main(String[] args) throws Exception {
        List<String> ports = Arrays.asList(args).subList(1, args.length);
        RedisURI.Builder uri = RedisURI.builder().withSentinelMasterId(Takeover.NAME);
        ports.forEach(port -> uri.withSentinel("127.0.0.1", Integer.parseInt(port)));
        RedisClient client = RedisClient.create();
        StatefulRedisConnection<String, String> connection = args[0].equals("topology")
                ? MasterReplica.connect(client, StringCodec.UTF8, uri.build())
                : client.connect(uri.build());
        LettuceLock lock = new LettuceLock(connection);
        SentinelLock.run("Lettuce, " + args[0], request -> request.test(lock), () -> port(connection));
        client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
    }

    private static String port(StatefulRedisConnection<String, String> connection) {
        String field = "tcp_port:";
        return connection.sync().info("server").lines()
                .filter(line -> line.startsWith(field)).findFirst().orElseThrow().substring(field.length());
    }
}
