package examples;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.redlatch.junit.Redlatch;
import dev.redlatch.junit.RedlatchTest;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

class LeaseTest {
    @Test
    @RedlatchTest(freeze = true)
    void aLeaseEndsWithoutSleep(Redlatch redlatch) throws InterruptedException {
        RedissonClient crashed = client(redlatch);
        RedissonClient next = client(redlatch);
        RLock lock = next.getLock("stock");

        assertTrue(crashed.getLock("stock").tryLock(0, 30, SECONDS));
        redlatch.clock().advance(Duration.ofSeconds(30)); // the last millisecond of the lease
        assertFalse(lock.tryLock());
        redlatch.clock().advance(Duration.ofMillis(1));
        assertTrue(lock.tryLock());
        lock.unlock();

        crashed.shutdown();
        next.shutdown();
    }

    private static RedissonClient client(Redlatch redlatch) {
        Config config = new Config();
        config.setPassword(redlatch.password());
        config.useSingleServer().setAddress(redlatch.address());
        return Redisson.create(config);
    }
}
