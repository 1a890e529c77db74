package examples;

import dev.redlatch.client.Held;
import dev.redlatch.client.LockLost;
import dev.redlatch.client.Locks;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.function.Consumer;

/** One process of several leads, as long as its connection lasts. What it does is interrupted when it leads no more. */
public final class Leader {
    /** {@code work} ends when its thread is interrupted. */
    public static void leadForever(Locks locks, Consumer<Held> work) throws InterruptedException {
        while (true) {
            try (Held held = locks.lock("lock:leader")
                    .session(Duration.ofSeconds(2))
                    .waiting(ChronoUnit.FOREVER.getDuration())
                    .acquire()) {
                Thread leading = new Thread(() -> work.accept(held));
                held.lost().thenRun(leading::interrupt);
                leading.start();
                leading.join();
            } catch (LockLost lost) {
                System.out.println(lost.getMessage());
            }
        }
    }
}
