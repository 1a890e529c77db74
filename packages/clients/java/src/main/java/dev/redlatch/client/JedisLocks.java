package dev.redlatch.client;

import java.util.Objects;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.providers.ConnectionProvider;

/** Locks over a client of Jedis, 5 or newer. */
public final class JedisLocks {
    private JedisLocks() {}

    /**
     * Locks over the settings of a client: {@code JedisPooled}, {@code JedisCluster}, {@code JedisSentineled}, {@code
     * RedisClient} and other pooled kinds of {@code UnifiedJedis}.
     *
     * @param client it stays the caller's, to close it
     * @return the locks; one for the whole program
     * @throws IllegalArgumentException the client has a single connection
     */
    public static Locks over(UnifiedJedis client) {
        // There is no public method for it that all kinds of clients have.
        UnifiedJedis known = Objects.requireNonNull(client, "client");
        return over((ConnectionProvider) JedisConnector.field(UnifiedJedis.class, "provider", known));
    }

    /**
     * Locks over the settings that a provider makes connections with.
     *
     * @param provider of pooled connections, of a cluster, or of a leader that Sentinels name
     * @return the locks; one for the whole program
     * @throws IllegalArgumentException the provider has no pool
     */
    public static Locks over(ConnectionProvider provider) {
        return new Locks(new JedisDriver(new JedisConnector(Objects.requireNonNull(provider, "provider"))));
    }
}
