package compare;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.github.fppt.jedismock.RedisServer;
import java.io.IOException;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import org.junit.jupiter.api.Test;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** The clock of jedis-mock moves leases and TIME, not the timeouts of clients that wait in the server. */
class JedisMockLeaseTest {
    @Test
    void lease() throws IOException, InterruptedException {
        Stopwatch stopwatch = new Stopwatch();
        Clock clock = Clock.fixed(Instant.now(), ZoneOffset.UTC);
        RedisServer server = RedisServer.newRedisServer().setClock(clock).start();
        stopwatch.print("start");
        RedissonClient firstClient = client(server);
        RedissonClient secondClient = client(server);
        RLock first = firstClient.getLock("stock");
        RLock second = secondClient.getLock("stock");

        assertTrue(first.tryLock(0, 30, SECONDS));
        assertFalse(second.tryLock(0, 30, SECONDS));
        server.setClock(Clock.offset(clock, Duration.ofSeconds(31)));
        assertTrue(second.tryLock(0, 30, SECONDS));
        assertThrows(IllegalMonitorStateException.class, first::unlock);
        stopwatch.print("body");

        firstClient.shutdown();
        secondClient.shutdown();
        server.stop();
    }

    private static RedissonClient client(RedisServer server) {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://" + server.getHost() + ":" + server.getBindPort());
        return Redisson.create(config);
    }
}
