import java.util.Arrays;
import java.util.Set;
import java.util.stream.Collectors;
import redis.clients.jedis.JedisSentinelPool;

/** Jedis in Sentinel mode. The arguments are the ports of the nodes. */
final class JedisSentinel {
    private JedisSentinel() {}

    public static void main(String[] ports) throws Exception {
        Set<String> nodes = Arrays.stream(ports).map(port -> "127.0.0.1:" + port).collect(Collectors.toSet());
        try (JedisSentinelPool pool = new JedisSentinelPool(Takeover.NAME, nodes)) {
            SentinelLock.run("Jedis", request -> {
                try (JedisLock lock = new JedisLock(pool.getResource())) {
                    return request.test(lock);
                }
            }, () -> pool.getCurrentHostMaster().getPort());
        }
    }
}
