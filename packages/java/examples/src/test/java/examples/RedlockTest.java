package examples;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.redlatch.junit.Redlatch;
import dev.redlatch.junit.RedlatchTest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

class RedlockTest {
    @Test
    @RedlatchTest(nodes = 5, freeze = true)
    void redlockWithCrashedNodes(Redlatch redlatch) throws InterruptedException {
        List<RedissonClient> first = clients(redlatch);
        List<RedissonClient> second = clients(redlatch);
        RLock held = redlock(first);
        RLock next = redlock(second);

        assertTrue(held.tryLock(10_000, 30_000, MILLISECONDS));
        redlatch.nodes().crash(1);
        redlatch.nodes().crash(2);
        // Three of five still know the lock.
        assertFalse(next.tryLock(200, 30_000, MILLISECONDS));

        // Its lease ends on those three, and they are a majority for the next one.
        redlatch.clock().advance(Duration.ofMillis(30_001));
        assertTrue(next.tryLock(10_000, 30_000, MILLISECONDS));
        next.unlock();

        // Two are none.
        redlatch.nodes().crash(3);
        assertFalse(next.tryLock(200, 30_000, MILLISECONDS));

        first.forEach(RedissonClient::shutdown);
        second.forEach(RedissonClient::shutdown);
    }

    private static RLock redlock(List<RedissonClient> clients) {
        RLock[] locks = clients.stream().map(client -> client.getLock("stock")).toArray(RLock[]::new);
        return clients.get(0).getRedLock(locks);
    }

    private static List<RedissonClient> clients(Redlatch redlatch) {
        List<RedissonClient> clients = new ArrayList<>();
        for (String address : redlatch.addresses()) {
            Config config = new Config();
            config.setPassword(redlatch.password());
            config.useSingleServer().setAddress(address).setRetryAttempts(0).setConnectionMinimumIdleSize(1)
                    .setConnectTimeout(1_000).setTimeout(1_000); // for nodes that have crashed
            clients.add(Redisson.create(config));
        }
        return clients;
    }
}
