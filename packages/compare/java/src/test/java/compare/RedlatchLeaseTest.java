package compare;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.redlatch.junit.Redlatch;
import dev.redlatch.junit.RedlatchTest;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

class RedlatchLeaseTest {
    private final Stopwatch stopwatch = new Stopwatch();

    @Test
    @RedlatchTest(freeze = true)
    void lease(Redlatch redlatch) throws InterruptedException {
        stopwatch.print("start");
        RedissonClient firstClient = client(redlatch);
        RedissonClient secondClient = client(redlatch);
        RLock first = firstClient.getLock("stock");
        RLock second = secondClient.getLock("stock");

        assertTrue(first.tryLock(0, 30, SECONDS));
        assertFalse(second.tryLock(0, 30, SECONDS));
        redlatch.clock().advance(Duration.ofSeconds(31));
        assertTrue(second.tryLock(0, 30, SECONDS));
        assertThrows(IllegalMonitorStateException.class, first::unlock);
        stopwatch.print("body");

        firstClient.shutdown();
        secondClient.shutdown();
    }

    private static RedissonClient client(Redlatch redlatch) {
        Config config = new Config();
        config.setPassword(redlatch.password());
        config.useSingleServer().setAddress(redlatch.address());
        return Redisson.create(config);
    }
}
