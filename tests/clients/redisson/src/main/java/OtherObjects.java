import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.time.Duration;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RMapCache;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;

/** Objects beside the locks, whose scripts use Lua's `struct`. */
final class OtherObjects {
    private OtherObjects() {}

    static void run(RedissonClient here, RedissonClient there) throws Exception {
        limiter(here, there);
        map(here, there);
        queue(here, there);
    }

    private static void limiter(RedissonClient here, RedissonClient there) {
        Checks checks = new Checks("rate limiter");
        RRateLimiter mine = here.getRateLimiter("limiter");
        RRateLimiter theirs = there.getRateLimiter("limiter");
        checks.check("its rate is set once", mine.trySetRate(RateType.OVERALL, 2, Duration.ofMinutes(5))
            && !theirs.trySetRate(RateType.OVERALL, 9, Duration.ofMinutes(5)));
        checks.check("two may pass", mine.tryAcquire() && theirs.tryAcquire());
        checks.check("a third may not", !mine.tryAcquire() && !theirs.tryAcquire(1));
        checks.check("nothing is left", theirs.availablePermits() == 0, theirs.availablePermits());
        checks.check("it is deleted", mine.delete());
    }

    private static void map(RedissonClient here, RedissonClient there) throws Exception {
        Checks checks = new Checks("map cache");
        RMapCache<String, String> mine = here.getMapCache("map");
        RMapCache<String, String> theirs = there.getMapCache("map");
        checks.check("one of two puts", mine.putIfAbsent("key", "mine", 10, SECONDS) == null
            && "mine".equals(theirs.putIfAbsent("key", "theirs", 10, SECONDS)));
        checks.check("both see it", "mine".equals(theirs.get("key")) && theirs.containsKey("key"));
        checks.check("it lives for as long as it was told to", mine.remainTimeToLive("key") > 5_000);
        checks.check("it is replaced if it is what it is thought to be",
            theirs.replace("key", "mine", "theirs") && !theirs.replace("key", "mine", "ours"));
        checks.check("it is removed if it is what it is thought to be",
            !mine.remove("key", "mine") && mine.remove("key", "theirs") && mine.get("key") == null);
        mine.put("short", "lived", 50, MILLISECONDS);
        checks.check("an entry ends", Checks.becomes(() -> theirs.get("short") == null));
        checks.check("and another may put it", theirs.putIfAbsent("short", "theirs", 10, SECONDS) == null);
        checks.check("all are read", mine.readAllMap().size() == 1 && mine.size() == 1 && mine.delete());
        mine.destroy();
        theirs.destroy();
    }

    @SuppressWarnings("deprecation")
    private static void queue(RedissonClient here, RedissonClient there) throws Exception {
        Checks checks = new Checks("delayed queue");
        RBlockingQueue<String> target = there.getBlockingQueue("queue");
        RDelayedQueue<String> mine = here.getDelayedQueue(here.getBlockingQueue("queue"));
        // Alone: of two that each become the first within a moment, Redisson may keep the timer of the later one.
        mine.offer("soon", 50, MILLISECONDS);
        checks.check("what is due arrives", "soon".equals(target.poll(10, SECONDS)));
        mine.offer("later", 300, SECONDS);
        mine.offer("latest", 400, SECONDS);
        checks.check("both wait", mine.size() == 2 && mine.contains("later"), mine.readAll());
        checks.check("what is not due can be taken back",
            mine.remove("later") && mine.remove("latest") && mine.isEmpty());
        mine.destroy();
    }
}
