import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.redisson.api.RedissonClient;

/**
 * Everything that Redisson has to lock with. Arguments, if there are any, name the sections to run; the one named
 * `native` needs a server that has LOCK.ACQUIRE, the one named `restarts` two that are started again. With the argument
 * `cluster` the clients are in cluster mode.
 */
final class RedissonLocks {
    private interface Section {
        void run(RedissonClient here, RedissonClient there) throws Exception;
    }

    private static final List<String> REDLATCH_ALONE = List.of("native", "restarts");

    private RedissonLocks() {}

    public static void main(String[] args) {
        try {
            List<String> chosen = new ArrayList<>(List.of(args));
            if (chosen.remove("cluster")) {
                Servers.becomeClusters();
            }
            run(chosen);
            System.out.println("done");
            // Not every thread that Redisson started, or that an owner left waiting, is a daemon.
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(List<String> chosen) throws Exception {
        RedissonClient here = Servers.open();
        RedissonClient there = Servers.open();
        for (var section : sections().entrySet()) {
            String name = section.getKey();
            if (chosen.isEmpty() ? !REDLATCH_ALONE.contains(name) : chosen.contains(name)) {
                long start = System.nanoTime();
                section.getValue().run(here, there);
                System.out.println(name + ": " + Checks.msSince(start) + " ms");
            }
        }
        here.shutdown();
        there.shutdown();
    }

    private static Map<String, Section> sections() {
        Map<String, Section> sections = new LinkedHashMap<>();
        sections.put("lock", ReentrantLocks::plain);
        sections.put("modern", (here, there) -> ReentrantLocks.modern());
        sections.put("spin", ReentrantLocks::spin);
        sections.put("fenced", ReentrantLocks::fenced);
        sections.put("once", ReentrantLocks::once);
        sections.put("fair", FairLocks::run);
        sections.put("read-write", ReadWriteLocks::run);
        sections.put("semaphore", Semaphores::counting);
        sections.put("permits", Semaphores::expirable);
        sections.put("latch", Latches::run);
        sections.put("values", MultiLocks::ofValues);
        sections.put("objects", OtherObjects::run);
        sections.put("native", NativeHolders::run);
        sections.put("restarts", (here, there) -> Restarts.run());
        // Last: it ends a server.
        sections.put("multi", (here, there) -> MultiLocks.onServers());
        return sections;
    }
}
