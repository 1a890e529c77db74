import net.javacrumbs.shedlock.provider.redis.jedis4.JedisLockProvider;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPool;

/** ShedLock's provider on Jedis, with safe updates, which are all it has. */
final class ShedLockOnJedis {
    private ShedLockOnJedis() {}

    public static void main(String[] args) throws Exception {
        try (JedisPool pool = new JedisPool(HandLocks.HOST, HandLocks.PORT)) {
            ShedLocks.run("jedis", false, new JedisLockProvider(pool, "test"), job -> remainingMs(pool, job));
        }
        System.out.println("done");
        System.exit(0);
    }

    private static long remainingMs(JedisPool pool, String job) {
        try (Jedis jedis = pool.getResource()) {
            return jedis.pttl(jedis.keys("*:" + job).iterator().next());
        }
    }
}
