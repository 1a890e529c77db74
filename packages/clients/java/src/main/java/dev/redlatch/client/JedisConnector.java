package dev.redlatch.client;

import java.lang.reflect.Field;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import redis.clients.jedis.Connection;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.providers.ClusterConnectionProvider;
import redis.clients.jedis.providers.ConnectionProvider;
import redis.clients.jedis.providers.SentineledConnectionProvider;
import redis.clients.jedis.util.JedisClusterCRC16;
import redis.clients.jedis.util.Pool;

/**
 * Makes connections as the pools of a provider do, but not of them: a wait would take one out of a pool for long, and a push
 * that tells of a loss would be read by the request that uses it next.
 */
final class JedisConnector {
    /** Before Jedis 6 the one of Sentinels gives a connection instead of the pool. */
    private static final boolean HAS_SENTINELED_MAP = hasSentineledMap();

    private final ConnectionProvider provider;

    JedisConnector(ConnectionProvider provider) {
        this.provider = provider;
        if (provider == null || pools().hasNext() && !(pools().next() instanceof Pool)) {
            throw new IllegalArgumentException("locks need a client with a pool of connections");
        }
    }

    /** The pool of the node that serves a key. */
    Pool<Connection> node(byte[] key) {
        Object found;
        if (provider instanceof ClusterConnectionProvider) {
            ClusterConnectionProvider cluster = (ClusterConnectionProvider) provider;
            HostAndPort node = cluster.getNode(JedisClusterCRC16.getSlot(key));
            found = node == null ? null : cluster.getNodes().get(node.toString());
        } else {
            found = pools().next();
        }
        if (found == null) {
            throw Failure.reply("CLUSTERDOWN no node serves the key", null);
        }
        return pool(found);
    }

    /** The pool of any node. */
    Pool<Connection> anyNode() {
        Iterator<?> pools = pools();
        if (!pools.hasNext()) {
            throw Failure.reply("CLUSTERDOWN there is no node", null);
        }
        return pool(pools.next());
    }

    Connection connect(Pool<Connection> node) {
        try {
            return node.getFactory().makeObject().getObject();
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new JedisConnectionException(String.valueOf(error.getMessage()), error);
        }
    }

    boolean isCluster() {
        return provider instanceof ClusterConnectionProvider;
    }

    /** A request has failed: another node may serve the key by now. */
    void refresh() {
        ((ClusterConnectionProvider) provider).renewSlotCache();
    }

    private Iterator<?> pools() {
        if (provider instanceof SentineledConnectionProvider && !HAS_SENTINELED_MAP) {
            return List.of(field(SentineledConnectionProvider.class, "pool", provider)).iterator();
        }
        return provider.getConnectionMap().values().iterator();
    }

    /** What no public method gives. */
    static Object field(Class<?> of, String name, Object from) {
        try {
            Field field = of.getDeclaredField(name);
            field.setAccessible(true);
            return field.get(from);
        } catch (ReflectiveOperationException hidden) {
            throw new IllegalArgumentException("this version of Jedis has no " + of.getSimpleName() + "." + name, hidden);
        }
    }

    private static boolean hasSentineledMap() {
        return Arrays.stream(SentineledConnectionProvider.class.getDeclaredMethods())
                .anyMatch(method -> method.getName().equals("getConnectionMap"));
    }

    @SuppressWarnings("unchecked")
    private static Pool<Connection> pool(Object found) {
        if (!(found instanceof Pool)) {
            throw new JedisException("the provider has no pool");
        }
        return (Pool<Connection>) found;
    }
}
