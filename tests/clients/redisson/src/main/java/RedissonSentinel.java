import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.Arrays;
import java.util.concurrent.Future;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RTopic;
import org.redisson.api.RedissonClient;
import org.redisson.api.redisnode.RedisNode;
import org.redisson.api.redisnode.RedisNodes;
import org.redisson.config.Config;

/** Redisson in Sentinel mode: its lock outlives the node that has granted it. The arguments are the ports of the nodes. */
final class RedissonSentinel {
    private static final Checks CHECKS = new Checks("Redisson by Sentinel");

    private RedissonSentinel() {}

    public static void main(String[] ports) {
        try {
            run(ports);
            // Not every thread that Redisson has started is a daemon.
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(String[] ports) throws Exception {
        String[] nodes = Arrays.stream(ports).map(port -> "redis://127.0.0.1:" + port).toArray(String[]::new);
        Config config = new Config();
        config.useSentinelServers().setMasterName(Takeover.NAME).addSentinelAddress(nodes);
        RedissonClient client = Redisson.create(config);
        RLock lock = client.getLock("by-sentinel");
        try (Owner owner = new Owner(client); Owner waiter = new Owner(client)) {
            owner.does(lock::lock);
            Future<Boolean> wait = waiter.begins(() -> Takeover.patiently(() -> lock.tryLock(60, 60, SECONDS)));
            // Redisson gives up, and says `false`, if the leader ends while it subscribes.
            RTopic channel = client.getTopic("redisson_lock__channel:{by-sentinel}");
            CHECKS.check("it subscribes", Checks.becomes(() -> channel.countSubscribers() > 0));
            Takeover.holds();
            boolean isHeld = owner.gets(() -> Takeover.patiently(lock::isHeldByCurrentThread));
            CHECKS.check("its owner still holds it", isHeld && !wait.isDone(), isHeld, wait);
            Takeover.still(leader(client));
            owner.does(lock::unlock);
            CHECKS.check("who waits is served", Owner.ended(wait));
            waiter.does(lock::unlock);
        }
        client.shutdown();
    }

    private static String leader(RedissonClient client) {
        return client.getRedisNodes(RedisNodes.SENTINEL_MASTER_SLAVE).getMaster()
                .info(RedisNode.InfoSection.SERVER).get("tcp_port");
    }
}
