package dev.redlatch.client;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import java.util.Objects;

/** Locks over a client of Lettuce, 6.x. */
public final class LettuceLocks {
    private LettuceLocks() {}

    /**
     * Locks of the server, or of the leader that the Sentinels of its URI name.
     *
     * @param client made with a URI. It stays the caller's, to shut it down
     * @return the locks; one for the whole program
     */
    public static Locks over(RedisClient client) {
        return over(client, null);
    }

    /**
     * Locks of the server at a URI, or of the leader that its Sentinels name.
     *
     * @param client it stays the caller's, to shut it down
     * @param uri that of the server
     * @return the locks; one for the whole program
     */
    public static Locks over(RedisClient client, RedisURI uri) {
        return new Locks(new LettuceDriver(new LettuceConnector.OfServer(Objects.requireNonNull(client, "client"), uri)));
    }

    /**
     * Locks of a cluster: each request goes to the node that serves the key.
     *
     * @param client it stays the caller's, to shut it down
     * @return the locks; one for the whole program
     */
    public static Locks over(RedisClusterClient client) {
        return new Locks(new LettuceDriver(new LettuceConnector.OfCluster(Objects.requireNonNull(client, "client"))));
    }
}
