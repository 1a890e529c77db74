package examples;

import dev.redlatch.client.Held;
import dev.redlatch.client.LettuceLocks;
import dev.redlatch.client.LockHeld;
import dev.redlatch.client.Locks;
import io.lettuce.core.RedisClient;
import java.time.Duration;
import java.util.List;
import java.util.function.ObjLongConsumer;

/** Takes a lock, works while it is held, and says who has it if it is not granted. */
public final class Stock {
    public static boolean restock(Locks locks, List<String> articles, ObjLongConsumer<String> write)
            throws InterruptedException {
        try (Held held = locks.lock("lock:stock").waiting(Duration.ofSeconds(5)).meta("reason", "delivery 4711").acquire()) {
            for (String article : articles) {
                held.throwIfLost();
                write.accept(article, held.token().orElseThrow());
            }
            return true;
        } catch (LockHeld refusal) {
            System.out.println(refusal.getMessage()); // who has it, why, since when, and how to break it
            return false;
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        RedisClient client = RedisClient.create("redis://localhost");
        // One for the whole program. With Jedis: JedisLocks.over(new JedisPooled("localhost", 6379)).
        try (Locks locks = LettuceLocks.over(client)) {
            restock(locks, List.of("shirts", "shoes"), (article, token) -> System.out.println(article + " " + token));
        } finally {
            client.shutdown();
        }
    }
}
