import java.util.List;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.commands.JedisCommands;
import redis.clients.jedis.params.SetParams;

/** Jedis, without a handshake, with HELLO 3 and in cluster mode: SET NX PX, EVAL to release, EVALSHA to extend. */
final class JedisLock implements HandLocks.Lock {
    private static HostAndPort server() {
        return new HostAndPort(HandLocks.HOST, HandLocks.PORT);
    }

    private final JedisCommands jedis;
    private final String extend;
    private final Runnable close;

    private JedisLock(DefaultJedisClientConfig config) {
        this(new Jedis(server(), config));
    }

    JedisLock(Jedis jedis) {
        this(jedis, jedis.scriptLoad(HandLocks.EXTEND), jedis::close);
    }

    private JedisLock(JedisCluster cluster) {
        this(cluster, cluster.scriptLoad(HandLocks.EXTEND), cluster::close);
    }

    private JedisLock(JedisCommands jedis, String extend, Runnable close) {
        this.jedis = jedis;
        this.extend = extend;
        this.close = close;
    }

    /** With the argument {@code cluster}, in cluster mode. */
    public static void main(String[] args) throws Exception {
        if (List.of(args).contains("cluster")) {
            new HandLocks("cluster", () -> new JedisLock(new JedisCluster(server()))).run();
            System.out.println("done");
            return;
        }
        var plain = DefaultJedisClientConfig.builder().build();
        new HandLocks("plain", () -> new JedisLock(plain)).run();
        var resp3 = DefaultJedisClientConfig.builder()
                .protocol(RedisProtocol.RESP3).clientName("locks").build();
        new HandLocks("RESP3", () -> new JedisLock(resp3)).run();
        System.out.println("done");
    }

    @Override
    public boolean acquire(String key, String token, long leaseMs) {
        return "OK".equals(jedis.set(key, token, SetParams.setParams().nx().px(leaseMs)));
    }

    @Override
    public boolean release(String key, String token) {
        return Long.valueOf(1).equals(jedis.eval(HandLocks.RELEASE, List.of(key), List.of(token)));
    }

    @Override
    public boolean extend(String key, String token, long leaseMs) {
        List<String> arguments = List.of(token, Long.toString(leaseMs));
        return Long.valueOf(1).equals(jedis.evalsha(extend, List.of(key), arguments));
    }

    @Override
    public long remainingMs(String key) {
        return jedis.pttl(key);
    }

    @Override
    public String holder(String key) {
        return jedis.get(key);
    }

    @Override
    public void close() {
        close.run();
    }
}
