package examples;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.redlatch.junit.Redlatch;
import dev.redlatch.junit.RedlatchServer;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

class ClusterTest {
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aFailoverGrantsALockAgainOnlyIfItsMasterHasNotReplicatedIt(boolean replicates) throws InterruptedException {
        try (RedlatchServer server = RedlatchServer.start(6, "--cluster-enabled", "yes", "--cluster-replicas", "1")) {
            Redlatch orders = server.namespace();
            orders.nodes().replication(3, replicates);
            assertTrue(takes(orders, orders.addresses())); // the slot of a is on node 3
            orders.nodes().crash(3);
            orders.clock().advance(Duration.ofMillis(15_001));
            assertEquals(!replicates, takes(orders, orders.addresses().subList(0, 1)));
            List<?> rules = orders.check().stream().map(finding -> finding.get("rule")).toList();
            assertEquals(replicates ? List.of() : List.of("two-holders"), rules);
        }
    }

    private static boolean takes(Redlatch orders, List<String> addresses) throws InterruptedException {
        Config config = new Config();
        config.setPassword(orders.password());
        config.setCheckLockSyncedSlaves(false); // it would ask with WAIT, and give up a lock that no replica has
        config.useClusterServers().addNodeAddress(addresses.toArray(String[]::new));
        RedissonClient client = Redisson.create(config);
        try {
            return client.getLock("a").tryLock(0, 60_000, MILLISECONDS);
        } finally {
            client.shutdown(0, 2_000, MILLISECONDS);
        }
    }
}
