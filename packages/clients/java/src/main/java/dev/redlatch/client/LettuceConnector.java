package dev.redlatch.client;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;

/** Makes connections of a client of Lettuce. */
interface LettuceConnector {
    /** Which node serves a key. The first time, a cluster is asked for its nodes. */
    Object node(byte[] key);

    /** Whether that is known without a request. */
    boolean knowsNodes();

    LettuceWire connect(Object node);

    StatefulRedisPubSubConnection<byte[], byte[]> subscriber();

    boolean isCluster();

    /** A request has failed: another node of the cluster may serve the key by now. */
    void refresh();

    /** One server, or the leader that Sentinels name. */
    final class OfServer implements LettuceConnector {
        private final RedisClient client;
        private final RedisURI uri;

        OfServer(RedisClient client, RedisURI uri) {
            this.client = client;
            this.uri = uri;
        }

        @Override
        public Object node(byte[] key) {
            return "";
        }

        @Override
        public boolean knowsNodes() {
            return true;
        }

        @Override
        public LettuceWire connect(Object node) {
            ByteArrayCodec codec = ByteArrayCodec.INSTANCE;
            return new LettuceWire(uri == null ? client.connect(codec) : client.connect(codec, uri), null);
        }

        @Override
        public StatefulRedisPubSubConnection<byte[], byte[]> subscriber() {
            ByteArrayCodec codec = ByteArrayCodec.INSTANCE;
            return uri == null ? client.connectPubSub(codec) : client.connectPubSub(codec, uri);
        }

        @Override
        public boolean isCluster() {
            return false;
        }

        @Override
        public void refresh() {
            // Each connection asks the Sentinels.
        }
    }

    /** The nodes of a cluster. */
    final class OfCluster implements LettuceConnector {
        private final RedisClusterClient client;
        private volatile boolean knowsNodes;

        OfCluster(RedisClusterClient client) {
            this.client = client;
        }

        @Override
        public Object node(byte[] key) {
            RedisClusterNode node = client.getPartitions().getPartitionBySlot(SlotHash.getSlot(key));
            knowsNodes = true;
            if (node == null) {
                throw Failure.reply("CLUSTERDOWN no node serves the key", null);
            }
            return node.getNodeId();
        }

        @Override
        public boolean knowsNodes() {
            return knowsNodes;
        }

        @Override
        public LettuceWire connect(Object node) {
            // The node's connection belongs to one of the whole cluster, and ends with it.
            StatefulRedisClusterConnection<byte[], byte[]> whole = client.connect(ByteArrayCodec.INSTANCE);
            try {
                return new LettuceWire(whole.getConnection((String) node), whole);
            } catch (RuntimeException failure) {
                whole.closeAsync();
                throw failure;
            }
        }

        @Override
        public StatefulRedisPubSubConnection<byte[], byte[]> subscriber() {
            return client.connectPubSub(ByteArrayCodec.INSTANCE);
        }

        @Override
        public boolean isCluster() {
            return true;
        }

        @Override
        public void refresh() {
            client.refreshPartitions();
        }
    }
}
