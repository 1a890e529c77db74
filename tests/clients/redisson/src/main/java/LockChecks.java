import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.List;
import java.util.concurrent.Future;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** What every kind of RLock promises, told for one kind. */
final class LockChecks {
    /** Names the lock of the kind under test. */
    interface Kind {
        RLock of(RedissonClient client, String name);
    }

    private static final long LEASE_MS = 300;
    /** What a watchdog is given where one is awaited: it renews every third of it. */
    private static final long WATCHDOG_MS = 600;

    private final String label;
    private final Kind kind;
    private final Checks checks;
    private boolean isFreeReleaseRefused = true;
    private boolean isForceable = true;
    private boolean isTimed = true;

    LockChecks(String label, Kind kind) {
        this.label = label;
        this.kind = kind;
        checks = new Checks(label);
    }

    /** Of this kind, anybody may release a lock that nobody holds: to no effect. */
    LockChecks lenient() {
        isFreeReleaseRefused = false;
        return this;
    }

    /** This kind does not tell what is left of its lease. */
    LockChecks timeless() {
        isTimed = false;
        return this;
    }

    /** This kind does not say rightly whether a lock was ended by force. */
    LockChecks unforced() {
        isForceable = false;
        return this;
    }

    /** All of it, on two clients. */
    void run(RedissonClient here, RedissonClient there) throws Exception {
        try (Owner first = new Owner(here); Owner second = new Owner(there)) {
            ownership(first, second);
            handOver(first, second);
            leases(first, second);
            if (isForceable) {
                force(first, second);
            }
            watchdog(second);
            deadHolder(second);
        }
        race(here, there);
    }

    private void ownership(Owner first, Owner second) throws Exception {
        RLock mine = lock(first, "stock");
        RLock theirs = lock(second, "stock");
        first.does(mine::lock);
        checks.check("acquire", mine.isLocked() && first.gets(mine::isHeldByCurrentThread));
        left("for as long as the watchdog says", mine, 25_000, 30_000);
        checks.check("contended acquire is refused", !second.gets(() -> theirs.tryLock()));
        long start = System.nanoTime();
        boolean isTaken = second.gets(() -> theirs.tryLock(100, MILLISECONDS));
        long waited = Checks.msSince(start);
        checks.check("a wait that is too short is refused", !isTaken && waited >= 98, isTaken, waited);
        checks.check("who waited holds nothing", !second.gets(theirs::isHeldByCurrentThread));
        boolean isRefused = second.isRefused(IllegalMonitorStateException.class, theirs::unlock);
        checks.check("release by a non-owner is refused", isRefused);
        try (Owner thread = new Owner(first.client)) {
            checks.check("another thread is another owner", !thread.gets(() -> mine.tryLock()));
            isRefused = thread.isRefused(IllegalMonitorStateException.class, mine::unlock);
            checks.check("and cannot release, either", isRefused);
        }
        checks.check("the owner still holds it", first.gets(mine::isHeldByCurrentThread));
        first.does(mine::unlock);
        checks.check("release", !mine.isLocked());
        isRefused = first.isRefused(IllegalMonitorStateException.class, mine::unlock);
        String answer = isFreeReleaseRefused ? "a second release is refused" : "a second release is forgiven";
        checks.check(answer, isRefused == isFreeReleaseRefused);
    }

    /** The holder's lease is far too long for the waiter to wait for: only the release can serve it. */
    private void handOver(Owner first, Owner second) throws Exception {
        RLock mine = lock(first, "handover");
        RLock theirs = lock(second, "handover");
        first.does(mine::lock);
        Future<Boolean> waiting = second.begins(() -> theirs.tryLock(20, 10, SECONDS));
        Checks.sleepMs(100);
        checks.check("contended acquire waits", !waiting.isDone());
        long start = System.nanoTime();
        first.does(mine::unlock);
        boolean isServed = Owner.ended(waiting);
        long waited = Checks.msSince(start);
        checks.check("and is served by the release", isServed && waited < 5_000, isServed, waited);
        left("with the lease that it asked for", theirs, 9_000, 10_000);
        second.does(theirs::unlock);
    }

    private void leases(Owner first, Owner second) throws Exception {
        RLock mine = lock(first, "lease");
        RLock theirs = lock(second, "lease");
        long start = System.nanoTime();
        checks.check("acquire a short lease", first.gets(() -> mine.tryLock(0, LEASE_MS, MILLISECONDS)));
        second.does(() -> theirs.lock(10, SECONDS));
        long held = Checks.msSince(start);
        checks.check("expiry hands over, not before the lease ended", held >= LEASE_MS - 2, held);
        // Where leases are fields with a client's time, their last millisecond belongs to both.
        Checks.passMillisecond();
        boolean isRefused = first.isRefused(IllegalMonitorStateException.class, mine::unlock);
        checks.check("the lapsed holder cannot release", isRefused);
        checks.check("the heir still holds it", second.gets(theirs::isHeldByCurrentThread));
        second.does(theirs::unlock);
    }

    private void force(Owner first, Owner second) throws Exception {
        RLock mine = lock(first, "force");
        RLock theirs = lock(second, "force");
        first.does(mine::lock);
        Future<Boolean> waiting = second.begins(() -> theirs.tryLock(20, 10, SECONDS));
        Checks.sleepMs(50);
        checks.check("somebody may end a lock by force", mine.forceUnlock());
        checks.check("which serves who waits", Owner.ended(waiting));
        checks.check("a holder that was robbed holds nothing", !first.gets(mine::isHeldByCurrentThread));
        second.does(theirs::unlock);
        checks.check("there is nothing to force then", !mine.forceUnlock());
    }

    private void watchdog(Owner other) throws Exception {
        RedissonClient watched = Servers.open(config -> config.setLockWatchdogTimeout(WATCHDOG_MS));
        try (Owner holder = new Owner(watched)) {
            RLock mine = lock(holder, "watched");
            RLock theirs = lock(other, "watched");
            holder.does(mine::lock);
            left("a watchdog's lease is short", mine, 0, WATCHDOG_MS);
            boolean isTaken = other.gets(() -> theirs.tryLock(2 * WATCHDOG_MS, MILLISECONDS));
            checks.check("and is renewed for as long as it is held", !isTaken);
            left("by the same time again", mine, 0, WATCHDOG_MS);
            holder.does(mine::unlock);
            checks.check("a release ends the watch", other.gets(() -> theirs.tryLock()));
            other.does(theirs::unlock);
        } finally {
            watched.shutdown();
        }
    }

    private void deadHolder(Owner heir) throws Exception {
        RedissonClient dying = Servers.open(config -> config.setLockWatchdogTimeout(WATCHDOG_MS));
        RLock theirs = lock(heir, "orphan");
        try (Owner holder = new Owner(dying)) {
            RLock mine = lock(holder, "orphan");
            holder.does(mine::lock);
        } finally {
            dying.shutdown();
        }
        checks.check("a lock outlives its holder", theirs.isLocked());
        long start = System.nanoTime();
        boolean isTaken = heir.gets(() -> theirs.tryLock(20, 10, SECONDS));
        long waited = Checks.msSince(start);
        checks.check("by one lease", isTaken && waited < WATCHDOG_MS + 4_000, isTaken, waited);
        heir.does(theirs::unlock);
    }

    private void race(RedissonClient here, RedissonClient there) throws Exception {
        List<RedissonClient> clients = List.of(here, there, here, there);
        List<Owner> owners = clients.stream().map(Owner::new).toList();
        checks.race(owners, (owner, critical) -> {
            RLock lock = lock(owner, "race");
            lock.lock();
            try {
                critical.run();
            } finally {
                lock.unlock();
            }
        });
        owners.forEach(Owner::close);
    }

    private void left(String name, RLock lock, long above, long atMost) {
        if (isTimed) {
            long left = lock.remainTimeToLive();
            checks.check(name, left > above && left <= atMost, left);
        }
    }

    private RLock lock(Owner owner, String name) {
        return kind.of(owner.client, label + ":" + name);
    }
}
