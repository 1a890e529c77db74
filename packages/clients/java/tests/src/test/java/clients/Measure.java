package clients;

import com.sun.management.OperatingSystemMXBean;
import dev.redlatch.client.Held;
import dev.redlatch.client.JedisLocks;
import dev.redlatch.client.LettuceLocks;
import dev.redlatch.client.Lock;
import dev.redlatch.client.Locks;
import dev.redlatch.junit.Redlatch;
import dev.redlatch.junit.RedlatchServer;
import io.lettuce.core.RedisClient;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.sync.RedisCommands;
import java.lang.management.ManagementFactory;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.params.SetParams;

/**
 * What a lock costs this process: acquire and release through the client, beside SET NX PX and EVALSHA by the library alone.
 *
 * <p>Arguments: pairs in a round (5000), rounds (9). Both in turn, one lock at a time, on a redlatch of its own. Prints
 * microseconds of CPU time of this process for a pair, its threads included: the median of the rounds after three that warm up.
 */
final class Measure {
    private static final String RELEASE =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final int WARM_UP = 3;

    private Measure() {}

    /** Takes and releases a lock. */
    private interface Pair {
        void run() throws InterruptedException;
    }

    public static void main(String[] arguments) throws InterruptedException {
        int pairs = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 5_000;
        int rounds = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 9;
        try (RedlatchServer server = RedlatchServer.start(1); Redlatch namespace = server.namespace()) {
            RedisClient lettuce = RedisClient.create(namespace.url());
            try (JedisPooled jedis = new JedisPooled(namespace.url());
                    Locks overLettuce = LettuceLocks.over(lettuce);
                    Locks overJedis = JedisLocks.over(jedis)) {
                Map<String, Pair> ways = new LinkedHashMap<>();
                ways.put("Lettuce", lettuceAlone(lettuce));
                ways.put("redlatch-client on Lettuce", ours(overLettuce));
                ways.put("Jedis", jedisAlone(jedis));
                ways.put("redlatch-client on Jedis", ours(overJedis));
                report(ways, pairs, rounds);
            } finally {
                lettuce.shutdown();
            }
        }
        // The threads of Lettuce's resources end by themselves, later.
        System.exit(0);
    }

    private static void report(Map<String, Pair> ways, int pairs, int rounds) throws InterruptedException {
        Map<String, List<Double>> took = new LinkedHashMap<>();
        for (int round = -WARM_UP; round < rounds; round++) {
            for (Map.Entry<String, Pair> way : ways.entrySet()) {
                long begun = cpuNanos();
                for (int pair = 0; pair < pairs; pair++) {
                    way.getValue().run();
                }
                double micros = (cpuNanos() - begun) / 1_000.0 / pairs;
                if (round >= 0) {
                    took.computeIfAbsent(way.getKey(), any -> new ArrayList<>()).add(micros);
                }
            }
        }
        double base = 1;
        for (Map.Entry<String, List<Double>> way : took.entrySet()) {
            double middle = way.getValue().stream().sorted().skip(rounds / 2).findFirst().orElseThrow();
            boolean isAlone = !way.getKey().contains("redlatch");
            base = isAlone ? middle : base;
            System.out.printf("%-28s %5.1f us%s%n", way.getKey(), middle, isAlone ? "" : String.format(", %.2f of it alone", middle / base));
        }
    }

    private static Pair ours(Locks locks) {
        Lock lock = locks.lock("lock:ours");
        return () -> {
            try (Held held = lock.acquire()) {
                held.token();
            }
        };
    }

    private static Pair lettuceAlone(RedisClient client) {
        RedisCommands<String, String> commands = client.connect().sync();
        String digest = commands.scriptLoad(RELEASE);
        SetArgs terms = SetArgs.Builder.nx().px(30_000);
        return () -> {
            String owner = owner();
            check("OK".equals(commands.set("lock:bare", owner, terms)));
            check(commands.evalsha(digest, ScriptOutputType.INTEGER, new String[] {"lock:bare"}, owner).equals(1L));
        };
    }

    private static Pair jedisAlone(JedisPooled jedis) {
        String digest = jedis.scriptLoad(RELEASE, "lock:bare");
        SetParams terms = SetParams.setParams().nx().px(30_000);
        return () -> {
            String owner = owner();
            check("OK".equals(jedis.set("lock:bare", owner, terms)));
            check(jedis.evalsha(digest, 1, "lock:bare", owner).equals(1L));
        };
    }

    private static String owner() {
        byte[] random = new byte[16];
        RANDOM.nextBytes(random);
        return HexFormat.of().formatHex(random);
    }

    private static void check(boolean isSo) {
        if (!isSo) {
            throw new IllegalStateException("it is not granted, or not released");
        }
    }

    private static long cpuNanos() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
