package clients;

import dev.redlatch.client.JedisLocks;
import dev.redlatch.client.LettuceLocks;
import dev.redlatch.client.Locks;
import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.resource.ClientResources;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.JedisSentineled;
import redis.clients.jedis.JedisSocketFactory;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisConnectionException;

/** The libraries under the client, over both versions of the protocol. */
enum Library {
    LETTUCE_2, LETTUCE_3, JEDIS_2, JEDIS_3;

    /** A machine that is busy takes long to open the first connection of a process. */
    static final Duration BUDGET = Duration.ofSeconds(30);

    private static final ClientResources RESOURCES = ClientResources.create();

    /** Locks over a client of their own, which ends with them. */
    static final class Client implements AutoCloseable {
        final Locks locks;
        private final AutoCloseable client;

        Client(Locks locks, AutoCloseable client) {
            this.locks = locks.budget(BUDGET);
            this.client = client;
        }

        @Override
        public void close() {
            locks.close();
            try {
                client.close();
            } catch (Exception failure) {
                throw new IllegalStateException(failure);
            }
        }
    }

    /** {@code timeout}: the library's limit for replies. */
    Client client(Where where, Duration timeout) {
        return this == LETTUCE_2 || this == LETTUCE_3 ? lettuce(where, timeout) : jedis(where, timeout);
    }

    Client client(Where where) {
        return client(where, Duration.ofSeconds(5));
    }

    /** A client that looks a name up for as long as {@code ends} has not come. */
    Client lookingUp(CountDownLatch ends) {
        if (this == LETTUCE_2 || this == LETTUCE_3) {
            ClientResources resources = RESOURCES.mutate().dnsResolver(host -> {
                awaitEnd(ends);
                throw new UnknownHostException(host);
            }).build();
            RedisClient client = RedisClient.create(resources, uri(Where.port(1), Duration.ofSeconds(60)));
            return new Client(LettuceLocks.over(client), () -> end(client));
        }
        JedisSocketFactory lookup = () -> {
            awaitEnd(ends);
            throw new JedisConnectionException("no such name");
        };
        UnifiedJedis client = new JedisPooled(new ConnectionPoolConfig(), lookup, Beside.config(Where.port(1)).build());
        return new Client(JedisLocks.over(client), client);
    }

    private static void awaitEnd(CountDownLatch ends) {
        try {
            ends.await();
        } catch (InterruptedException nobodyDoes) {
            throw new IllegalStateException(nobodyDoes);
        }
    }

    private Client lettuce(Where where, Duration timeout) {
        ProtocolVersion version = this == LETTUCE_2 ? ProtocolVersion.RESP2 : ProtocolVersion.RESP3;
        RedisURI uri = uri(where, timeout);
        if (where.kind() == Where.Kind.CLUSTER) {
            RedisClusterClient client = RedisClusterClient.create(RESOURCES, uri);
            client.setOptions(ClusterClientOptions.builder().protocolVersion(version).build());
            return new Client(LettuceLocks.over(client), () -> end(client));
        }
        RedisClient client = RedisClient.create(RESOURCES, uri);
        client.setOptions(ClientOptions.builder().protocolVersion(version).build());
        return new Client(LettuceLocks.over(client), () -> end(client));
    }

    static RedisURI uri(Where where, Duration timeout) {
        RedisURI.Builder uri = where.kind() == Where.Kind.SENTINEL
                ? RedisURI.Builder.sentinel(where.host(), where.port(), where.master())
                : RedisURI.builder().withHost(where.host()).withPort(where.port());
        if (where.user() != null) {
            uri.withAuthentication(where.user(), where.password());
        } else if (where.password() != null) {
            uri.withPassword(where.password().toCharArray());
        }
        return uri.withTimeout(timeout).build();
    }

    private static void end(AbstractRedisClient client) {
        client.shutdown(Duration.ZERO, Duration.ofSeconds(10));
    }

    private Client jedis(Where where, Duration timeout) {
        RedisProtocol version = this == JEDIS_2 ? RedisProtocol.RESP2 : RedisProtocol.RESP3;
        DefaultJedisClientConfig config =
                Beside.config(where).protocol(version).socketTimeoutMillis((int) timeout.toMillis()).build();
        HostAndPort address = new HostAndPort(where.host(), where.port());
        UnifiedJedis client = switch (where.kind()) {
            case SINGLE -> new JedisPooled(address, config);
            case CLUSTER -> new JedisCluster(Set.of(address), config);
            case SENTINEL -> new JedisSentineled(where.master(), config, Set.of(address), config);
        };
        return new Client(JedisLocks.over(client), client);
    }
}
