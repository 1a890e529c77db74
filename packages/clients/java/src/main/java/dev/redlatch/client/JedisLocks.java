package dev.redlatch.client;

import java.lang.reflect.Field;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.providers.ConnectionProvider;

/** Locks over a client of Jedis, 5 or newer. */
public final class JedisLocks {
    private JedisLocks() {}

    /**
     * Locks over the settings of a client: {@code JedisPooled}, {@code JedisCluster}, {@code JedisSentineled}, {@code RedisClient} and
     * other pooled kinds of {@code UnifiedJedis}.
     *
     * @param client it stays the caller's, to close it
     * @return the locks; one for the whole program
     * @throws IllegalArgumentException the client has a single connection
     */
    public static Locks over(UnifiedJedis client) {
        try {
            // There is no public method for it that all kinds of clients have.
            Field provider = UnifiedJedis.class.getDeclaredField("provider");
            provider.setAccessible(true);
            return over((ConnectionProvider) provider.get(client));
        } catch (ReflectiveOperationException hidden) {
            throw new IllegalArgumentException("this Jedis hides its ConnectionProvider: give it to over()", hidden);
        }
    }

    /**
     * Locks over the settings that a provider makes connections with.
     *
     * @param provider of pooled connections, of a cluster, or of a leader that Sentinels name
     * @return the locks; one for the whole program
     * @throws IllegalArgumentException the provider has no pool
     */
    public static Locks over(ConnectionProvider provider) {
        return new Locks(new JedisDriver(new JedisConnector(provider)));
    }
}
