package examples;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.redlatch.junit.Variables;
import java.io.IOException;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.params.SetParams;

/** What ExploreTest explores: code that takes a lock, and what else a test may do to its process. */
class Explored {
    private static final SetParams FREE_ONLY = SetParams.setParams().nx().px(5_000);
    private static final String RELEASE =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
    /** How often a server that restarts is asked again. */
    private static final int TRIES = 20_000;

    private static int runs;

    /** With the variable MENDED it is right. */
    @Test
    void wrong() {
        if (Variables.get("MENDED") != null) {
            right();
            return;
        }
        try (Jedis client = client()) {
            assertEquals("OK", client.set("orders", "me", FREE_ONLY));
            client.incr("paid");
            client.del("orders");
        }
    }

    @Test
    void right() {
        runs++;
        assertEquals(1, runs, "a run before this one has left something");
        try (Jedis client = client()) {
            assertEquals("OK", take(client));
            client.incr("paid");
            assertEquals(1L, release(client), "the lock was lost");
        }
    }

    @Test
    void fails() {
        throw new AssertionError("so it is");
    }

    @Test
    void prints() throws IOException {
        System.out.println("by the output, größer");
        System.err.println("by the error");
        assertEquals(-1, System.in.read());
    }

    @Test
    void exits() {
        System.exit(3);
    }

    private static String take(Jedis client) {
        try {
            return client.set("orders", "me", FREE_ONLY);
        } catch (JedisConnectionException lost) {
            // It may have been granted.
            giveBack();
            throw lost;
        }
    }

    private static void giveBack() {
        JedisConnectionException last = null;
        for (int tries = 0; tries < TRIES; tries++) {
            try (Jedis client = client()) {
                release(client);
                return;
            } catch (JedisConnectionException away) {
                last = away;
            }
        }
        throw last;
    }

    private static Object release(Jedis client) {
        return client.eval(RELEASE, 1, "orders", "me");
    }

    private static Jedis client() {
        return new Jedis(Variables.get("REDIS_URL"));
    }
}
