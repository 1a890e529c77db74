package examples;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.redlatch.junit.Redlatch;
import dev.redlatch.junit.RedlatchTest;
import dev.redlatch.junit.Where;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.junit.jupiter.api.Test;
import org.redisson.Redisson;
import org.redisson.api.RScript.Mode;
import org.redisson.api.RScript.ReturnType;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

class FencingTest {
    @Test
    @RedlatchTest(freeze = true)
    void aHolderThatPausesPastItsLeaseIsStoppedByItsToken(Redlatch redlatch) {
        RedissonClient slow = client(redlatch, "slow");
        RedissonClient other = client(redlatch, "other");

        long first = slow.getFencedLock("stock").tryLockAndGetToken(0, 30, SECONDS);
        redlatch.faults().pauseClient(Duration.ofMinutes(1), new Where().client("slow").command("SET"));
        slow.getBucket("progress").set("begun"); // it pauses here, and believes that it holds the lock
        CompletableFuture<Long> late = CompletableFuture.supplyAsync(() -> write(slow, first));

        redlatch.clock().advance(Duration.ofMillis(30_001));
        long second = other.getFencedLock("stock").tryLockAndGetToken(0, 30, SECONDS);
        assertEquals(1, write(other, second));

        redlatch.clock().advance(Duration.ofSeconds(30)); // the pause ends
        assertTrue(assertThrows(CompletionException.class, late::join).getMessage().contains("STALE"));

        slow.shutdown();
        other.shutdown();
    }

    /** What the lock protects refuses a token that is lower than one it has seen. */
    private static long write(RedissonClient client, long token) {
        String guard = "if tonumber(redis.call('get', KEYS[1]) or 0) > tonumber(ARGV[1]) then"
                + " return redis.error_reply('STALE') end redis.call('set', KEYS[1], ARGV[1]) return 1";
        return client.getScript(StringCodec.INSTANCE)
                .eval(Mode.READ_WRITE, guard, ReturnType.LONG, List.of("stock:file"), token);
    }

    private static RedissonClient client(Redlatch redlatch, String name) {
        Config config = new Config();
        config.setPassword(redlatch.password());
        config.useSingleServer().setAddress(redlatch.address()).setClientName(name)
                .setConnectionPoolSize(1).setConnectionMinimumIdleSize(1);
        return Redisson.create(config);
    }
}
