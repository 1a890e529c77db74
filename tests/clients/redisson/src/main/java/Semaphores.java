import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;

/** The counting semaphore, and the one whose permits have a lease each. */
final class Semaphores {
    private static final long LEASE_MS = 300;

    private Semaphores() {}

    static void counting(RedissonClient here, RedissonClient there) throws Exception {
        Checks checks = new Checks("semaphore");
        RSemaphore mine = here.getSemaphore("permits");
        RSemaphore theirs = there.getSemaphore("permits");
        checks.check("permits are set once", mine.trySetPermits(3) && !theirs.trySetPermits(7));
        mine.acquire(2);
        checks.check("acquire two of three", theirs.availablePermits() == 1);
        checks.check("two more are refused", !theirs.tryAcquire(2));
        checks.check("one is given", theirs.tryAcquire());
        long start = System.nanoTime();
        boolean isTaken = theirs.tryAcquire(Duration.ofMillis(100));
        checks.check("a wait that is too short is refused", !isTaken && Checks.msSince(start) >= 98);
        try (Owner waiter = new Owner(there)) {
            Future<Boolean> waiting = waiter.begins(() -> theirs.tryAcquire(2, Duration.ofSeconds(20)));
            Checks.sleepMs(50);
            mine.release();
            Checks.sleepMs(100);
            checks.check("one of two is not enough for a waiter", !waiting.isDone());
            start = System.nanoTime();
            mine.release();
            boolean isServed = Owner.ended(waiting);
            long waited = Checks.msSince(start);
            checks.check("two are", isServed && waited < 5_000, isServed, waited);
        }
        checks.check("there are none to drain", mine.drainPermits() == 0);
        mine.addPermits(4);
        checks.check("permits can be added", theirs.availablePermits() == 4, theirs.availablePermits());
        checks.check("and drained", theirs.drainPermits() == 4 && mine.availablePermits() == 0);
        mine.release(3);
        checks.check("and given back together", theirs.availablePermits() == 3);
        lapsing(checks, here.getSemaphore("lapsing"), there.getSemaphore("lapsing"));
        crowd(checks, here, there);
        oneIsALock(checks, here, there);
    }

    /** A semaphore may itself have a time to live. */
    private static void lapsing(Checks checks, RSemaphore mine, RSemaphore theirs) throws Exception {
        boolean isSet = mine.trySetPermits(1, Duration.ofMillis(LEASE_MS));
        checks.check("a semaphore for a time", isSet && theirs.availablePermits() == 1);
        checks.check("ends with it", Checks.becomes(() -> !theirs.isExists()) && !theirs.tryAcquire());
    }

    /** Three permits: three at a time, and sometimes really three. */
    private static void crowd(Checks checks, RedissonClient here, RedissonClient there) throws Exception {
        here.getSemaphore("crowd").trySetPermits(3);
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        List<RedissonClient> clients = List.of(here, there, here, there, here);
        List<Owner> owners = clients.stream().map(Owner::new).toList();
        List<Future<Void>> running = owners.stream().map(owner -> owner.<Void>begins(() -> {
            RSemaphore permits = owner.client.getSemaphore("crowd");
            for (int round = 0; round < 15; round++) {
                permits.acquire();
                most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                Checks.sleepMs(2);
                inside.decrementAndGet();
                permits.release();
            }
            return null;
        })).toList();
        for (Future<Void> worker : running) {
            Owner.ended(worker);
        }
        checks.check("as many at a time as there are permits", most.get() == 3, most.get());
        checks.check("and all are given back", here.getSemaphore("crowd").availablePermits() == 3);
        owners.forEach(Owner::close);
    }

    private static void oneIsALock(Checks checks, RedissonClient here, RedissonClient there)
            throws Exception {
        here.getSemaphore("race").trySetPermits(1);
        List<Owner> owners = List.of(new Owner(here), new Owner(there), new Owner(here), new Owner(there));
        checks.race(owners, (owner, critical) -> {
            RSemaphore permit = owner.client.getSemaphore("race");
            permit.acquire();
            critical.run();
            permit.release();
        });
        owners.forEach(Owner::close);
    }

    static void expirable(RedissonClient here, RedissonClient there) throws Exception {
        Checks checks = new Checks("expirable permits");
        RPermitExpirableSemaphore mine = here.getPermitExpirableSemaphore("leased");
        RPermitExpirableSemaphore theirs = there.getPermitExpirableSemaphore("leased");
        checks.check("permits are set once", mine.trySetPermits(2) && !theirs.trySetPermits(7));
        String first = mine.acquire();
        String second = mine.acquire(10, SECONDS);
        checks.check("each permit has its name", first != null && second != null && !first.equals(second));
        int[] seen = {theirs.availablePermits(), theirs.acquiredPermits(), theirs.getPermits()};
        checks.check("all see how many are out", seen[0] == 0 && seen[1] == 2 && seen[2] == 2, seen);
        checks.check("a third is refused", theirs.tryAcquire() == null);
        checks.check("and so is a short wait", theirs.tryAcquire(100, MILLISECONDS) == null);
        checks.check("release of a permit that nobody has is refused", !theirs.tryRelease("0".repeat(32)));
        long left = mine.getLeaseTime(second);
        checks.check("a lease can be read", left > 9_000 && left <= 10_000, left);
        checks.check("and changed", mine.updateLeaseTime(second, 60, SECONDS));
        left = mine.getLeaseTime(second);
        checks.check("to what was asked for", left > 59_000 && left <= 60_000, left);
        checks.check("a permit without a lease stays", mine.updateLeaseTime(first, 60, SECONDS));

        try (Owner waiter = new Owner(there)) {
            Future<String> waiting = waiter.begins(() -> theirs.tryAcquire(20, 10, SECONDS));
            Checks.sleepMs(50);
            checks.check("contended acquire waits", !waiting.isDone());
            long start = System.nanoTime();
            mine.release(first);
            String third = Owner.ended(waiting);
            long waited = Checks.msSince(start);
            checks.check("and is served by a release", third != null && waited < 5_000, third, waited);
            boolean isRefused = waiter.isRefused(RedisException.class, () -> mine.release(first));
            checks.check("a second release is refused", isRefused);
            checks.check("release", mine.tryRelease(second) && theirs.tryRelease(third));
        }
        leases(checks, mine, theirs);
        many(checks, here, there);
    }

    private static void leases(
            Checks checks, RPermitExpirableSemaphore mine, RPermitExpirableSemaphore theirs) throws Exception {
        long start = System.nanoTime();
        String brief = mine.acquire(LEASE_MS, MILLISECONDS);
        String longer = mine.acquire(10, SECONDS);
        String heir = theirs.tryAcquire(20, 10, SECONDS);
        long held = Checks.msSince(start);
        checks.check("expiry hands over", heir != null);
        checks.check("not before the lease ended", held >= LEASE_MS - 2, held);
        checks.check("a lapsed permit cannot be released", !mine.tryRelease(brief));
        checks.check("nor renewed", !mine.updateLeaseTime(brief, 10, SECONDS));
        checks.check("the others are still out", theirs.acquiredPermits() == 2, theirs.acquiredPermits());
        checks.check("and come back", mine.tryRelease(longer) && theirs.tryRelease(heir));
    }

    private static void many(Checks checks, RedissonClient here, RedissonClient there) throws Exception {
        RPermitExpirableSemaphore mine = here.getPermitExpirableSemaphore("many");
        RPermitExpirableSemaphore theirs = there.getPermitExpirableSemaphore("many");
        mine.trySetPermits(2);
        mine.addPermits(3);
        checks.check("permits can be added", theirs.availablePermits() == 5, theirs.availablePermits());
        List<String> three = mine.acquire(3, 10, SECONDS);
        checks.check("and taken together", three.size() == 3 && theirs.availablePermits() == 2);
        checks.check("more than there are, not", theirs.tryAcquire(3).isEmpty());
        mine.setPermits(4);
        checks.check("there may be fewer", theirs.availablePermits() == 1, theirs.availablePermits());
        checks.check("and they are given back together", mine.tryRelease(three) == 3);
        checks.check("as many as there should be", theirs.availablePermits() == 4, theirs.availablePermits());
        List<Owner> owners = List.of(new Owner(here), new Owner(there), new Owner(here), new Owner(there));
        here.getPermitExpirableSemaphore("one").trySetPermits(1);
        checks.race(owners, (owner, critical) -> {
            RPermitExpirableSemaphore one = owner.client.getPermitExpirableSemaphore("one");
            String permit = one.acquire(10, SECONDS);
            critical.run();
            one.release(permit);
        });
        owners.forEach(Owner::close);
    }
}
