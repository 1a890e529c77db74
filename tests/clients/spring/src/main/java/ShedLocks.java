import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicReference;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/** ShedLock: a job runs on one machine, at most for so long, and not again before so long. */
final class ShedLocks {
    private static final Duration BRIEF = Duration.ofMillis(300);
    private static final Duration LONG = Duration.ofSeconds(30);

    private final Checks checks;
    private final RedisLockProvider provider;
    private final LettuceConnectionFactory connections;

    private ShedLocks(boolean isSafe, LettuceConnectionFactory connections) {
        this.connections = connections;
        checks = new Checks(isSafe ? "safe" : "plain");
        provider = new RedisLockProvider.Builder(connections)
                .environment(isSafe ? "safe" : "plain").safeUpdate(isSafe).build();
    }

    static void run() throws Exception {
        LettuceConnectionFactory connections = Checks.connections();
        for (boolean isSafe : new boolean[] {true, false}) {
            ShedLocks locks = new ShedLocks(isSafe, connections);
            locks.once();
            locks.atLeast();
            locks.extension();
            locks.leases(isSafe);
            locks.race();
        }
        connections.destroy();
    }

    private void once() {
        SimpleLock job = lock("job", LONG, Duration.ZERO).orElseThrow();
        checks.check("a job is locked", true);
        checks.check("another machine does not run it", lock("job", LONG, Duration.ZERO).isEmpty());
        checks.check("but may run another job", lock("other job", LONG, Duration.ZERO).isPresent());
        job.unlock();
        SimpleLock again = lock("job", LONG, Duration.ZERO).orElseThrow();
        again.unlock();
        checks.check("it may run again when it is done", true);
        boolean isRefused = false;
        try {
            again.unlock();
        } catch (IllegalStateException error) {
            isRefused = true;
        }
        checks.check("a second release is refused", isRefused);
    }

    private void atLeast() {
        long start = System.nanoTime();
        SimpleLock job = lock("quick", LONG, BRIEF).orElseThrow();
        job.unlock();
        checks.check("a job that was quick is not run again at once", lock("quick", LONG, BRIEF).isEmpty());
        acquirePatiently("quick", LONG).unlock();
        long waited = Checks.msSince(start);
        checks.check("before its least time is over", waited >= BRIEF.toMillis() - 2, waited);
        checks.check("but then", waited < 5_000, waited);
    }

    private void extension() {
        SimpleLock job = lock("extended", BRIEF.multipliedBy(3), Duration.ZERO).orElseThrow();
        SimpleLock longer = job.extend(LONG, Duration.ZERO).orElseThrow();
        long left = remainingMs("extended");
        checks.check("a job may ask for more time", left > 25_000 && left <= 30_000, left);
        longer.unlock();
        checks.check("and is released", lock("extended", LONG, Duration.ZERO).isPresent());
    }

    private void leases(boolean isSafe) {
        long start = System.nanoTime();
        SimpleLock lapsed = lock("lease", BRIEF, Duration.ZERO).orElseThrow();
        SimpleLock heir = acquirePatiently("lease", LONG);
        long held = Checks.msSince(start);
        checks.check("expiry hands over, not before the lease ended", held >= BRIEF.toMillis() - 2, held);
        if (isSafe) {
            // Without `safeUpdate` nobody looks whose lock it is.
            checks.check("the lapsed holder cannot extend", lapsed.extend(LONG, Duration.ZERO).isEmpty());
            lapsed = lock("lapsed", BRIEF, Duration.ZERO).orElseThrow();
            SimpleLock next = acquirePatiently("lapsed", LONG);
            lapsed.unlock();
            checks.check("nor release", lock("lapsed", LONG, Duration.ZERO).isEmpty());
            next.unlock();
        }
        checks.check("the heir still holds it", lock("lease", LONG, Duration.ZERO).isEmpty());
        heir.unlock();
    }

    private void race() throws Exception {
        checks.race((worker, critical) -> {
            SimpleLock lock = acquirePatiently("race", LONG);
            critical.run();
            lock.unlock();
        });
    }

    private Optional<SimpleLock> lock(String name, Duration atMost, Duration atLeast) {
        return provider.lock(new LockConfiguration(Instant.now(), name, atMost, atLeast));
    }

    private SimpleLock acquirePatiently(String name, Duration atMost) {
        AtomicReference<SimpleLock> taken = new AtomicReference<>();
        while (taken.get() == null) {
            lock(name, atMost, Duration.ZERO).ifPresentOrElse(taken::set, () -> Checks.sleepMs(5));
        }
        return taken.get();
    }

    private long remainingMs(String name) {
        try (var connection = connections.getConnection()) {
            var keys = connection.keyCommands().keys(("*:" + name).getBytes());
            return connection.keyCommands().pTtl(keys.iterator().next());
        }
    }
}
