package dev.redlatch.client;

import java.util.Iterator;
import redis.clients.jedis.Connection;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.providers.ClusterConnectionProvider;
import redis.clients.jedis.providers.ConnectionProvider;
import redis.clients.jedis.util.JedisClusterCRC16;
import redis.clients.jedis.util.Pool;

/**
 * Makes connections as the pools of a provider do, but not of them: a wait would take one out of a pool for long, and a push that
 * tells of a loss would be read by whatever uses it next.
 */
final class JedisConnector {
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

    /** A request has failed: another node may serve the key by now. */
    void refresh() {
        if (provider instanceof ClusterConnectionProvider) {
            ((ClusterConnectionProvider) provider).renewSlotCache();
        }
    }

    private Iterator<?> pools() {
        return provider.getConnectionMap().values().iterator();
    }

    @SuppressWarnings("unchecked")
    private static Pool<Connection> pool(Object found) {
        if (!(found instanceof Pool)) {
            throw new JedisException("the provider has no pool");
        }
        return (Pool<Connection>) found;
    }
}
