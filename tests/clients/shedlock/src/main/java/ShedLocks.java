import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.ToLongFunction;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;

/** ShedLock: a job runs on one machine, at most for so long, and not again before so long. */
final class ShedLocks {
    private static final Duration BRIEF = Duration.ofMillis(300);
    private static final Duration LONG = Duration.ofSeconds(30);

    private final Checks checks;
    private final LockProvider provider;
    private final ToLongFunction<String> remainingMs;

    private ShedLocks(String label, LockProvider provider, ToLongFunction<String> remainingMs) {
        this.provider = provider;
        this.remainingMs = remainingMs;
        checks = new Checks(label);
    }

    /** With this provider; one that is safe looks whose lock it is. `remainingMs` is what is left of a job's lease. */
    static void run(String label, boolean isSafe, LockProvider provider, ToLongFunction<String> remainingMs)
            throws Exception {
        ShedLocks locks = new ShedLocks(label, provider, remainingMs);
        locks.once();
        locks.atLeast();
        locks.extension();
        locks.leases(isSafe);
        locks.race();
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
        long left = remainingMs.applyAsLong("extended");
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
            // Without nobody looks whose lock it is.
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
        checks.race(List.of(1, 2, 3, 4), (worker, critical) -> {
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
}
