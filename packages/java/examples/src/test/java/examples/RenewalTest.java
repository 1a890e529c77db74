package examples;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.redlatch.junit.Fault;
import dev.redlatch.junit.Redlatch;
import dev.redlatch.junit.RedlatchTest;
import dev.redlatch.junit.Where;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

class RenewalTest {
    @Test
    @RedlatchTest(freeze = true)
    void aRenewalThatIsLost(Redlatch redlatch) throws InterruptedException {
        RedissonClient first = client(redlatch);
        RedissonClient second = client(redlatch);
        RLock held = first.getLock("stock");
        RLock next = second.getLock("stock");

        held.lock();
        Fault fault = redlatch.faults().dropBefore(new Where().script("extend"));
        while (fault.hits() == 0) {
            Thread.sleep(5); // Redisson renews every 100 ms of real time
        }

        // The lease was not renewed, so another one gets the lock, and the first cannot release it.
        redlatch.clock().advance(Duration.ofMillis(301));
        assertTrue(next.tryLock());
        assertThrows(IllegalMonitorStateException.class, held::unlock);
        next.unlock();

        first.shutdown();
        second.shutdown();
    }

    private static RedissonClient client(Redlatch redlatch) {
        Config config = new Config();
        config.setPassword(redlatch.password());
        config.setLockWatchdogTimeout(300);
        config.useSingleServer().setAddress(redlatch.address()).setRetryAttempts(0);
        return Redisson.create(config);
    }
}
