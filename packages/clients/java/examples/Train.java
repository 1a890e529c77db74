package examples;

import dev.redlatch.client.Held;
import dev.redlatch.client.Lock;
import dev.redlatch.client.Locks;
import dev.redlatch.client.Mode;
import java.time.Duration;
import java.util.List;
import java.util.function.Consumer;

/** Trains on the first of several GPUs that is free. A tenant has at most two jobs at a time, all tenants together 100. */
public final class Train {
    private static final List<String> GPUS = List.of("gpu:0", "gpu:1", "gpu:2");
    private static final Duration WAIT = Duration.ofMinutes(1);

    public static void train(Locks locks, String tenant, Consumer<String> work) throws InterruptedException {
        String ofTenant = "tenant:" + tenant;
        Lock limits = locks.all(List.of(ofTenant, "total"))
                .mode(ofTenant, Mode.permits(1, 2))
                .mode("total", Mode.permits(1, 100))
                .waiting(WAIT);
        try (Held below = limits.acquire(); Held gpu = locks.anyOf(GPUS).waiting(WAIT).acquire()) {
            below.throwIfLost();
            work.accept(gpu.key());
        }
    }
}
