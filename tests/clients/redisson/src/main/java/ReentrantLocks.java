import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** RLock itself, and what is a little more or less than one: the spin lock and the fenced lock. */
final class ReentrantLocks {
    private ReentrantLocks() {}

    static void plain(RedissonClient here, RedissonClient there) throws Exception {
        new LockChecks("lock", RedissonClient::getLock).run(here, there);
        reentry("lock", here, there, RedissonClient::getLock);
        asynchronous(here, there);
    }

    /** The same over RESP3, with EVAL instead of EVALSHA. */
    static void modern() throws Exception {
        RedissonClient here = Servers.open(Servers::modern);
        RedissonClient there = Servers.open(Servers::modern);
        new LockChecks("lock over RESP3", RedissonClient::getLock).run(here, there);
        here.shutdown();
        there.shutdown();
    }

    static void spin(RedissonClient here, RedissonClient there) throws Exception {
        new LockChecks("spin lock", RedissonClient::getSpinLock).run(here, there);
        reentry("spin lock", here, there, RedissonClient::getSpinLock);
    }

    static void fenced(RedissonClient here, RedissonClient there) throws Exception {
        new LockChecks("fenced lock", RedissonClient::getFencedLock).run(here, there);
        reentry("fenced lock", here, there, RedissonClient::getFencedLock);
        tokens(here, there);
    }

    /** Kinds that refuse their own holder, too; Redisson has them from version 4 on. */
    static void once(RedissonClient here, RedissonClient there) throws Exception {
        for (String kind : List.of("NonReentrantLock", "NonReentrantFairLock")) {
            boolean isThere = Arrays.stream(RedissonClient.class.getMethods())
                    .anyMatch(method -> method.getName().equals("get" + kind));
            if (isThere) {
                LockChecks.Kind named = (client, name) -> named(client, kind, name);
                LockChecks checks = new LockChecks(kind, named);
                (kind.contains("Fair") ? checks.lenient() : checks).run(here, there);
                refusesItsHolder(new Checks(kind), named.of(here, kind + ":once"), here);
            }
        }
    }

    private static RLock named(RedissonClient client, String kind, String name) {
        try {
            return (RLock) RedissonClient.class.getMethod("get" + kind, String.class).invoke(client, name);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void refusesItsHolder(Checks checks, RLock lock, RedissonClient client) throws Exception {
        try (Owner holder = new Owner(client)) {
            holder.does(lock::lock);
            boolean isRefused = holder.isRefused(IllegalMonitorStateException.class, () -> lock.tryLock());
            checks.check("its owner may not take it again", isRefused);
            holder.does(lock::unlock);
            checks.check("one release is enough", !lock.isLocked());
        }
    }

    /** A lock that its owner has twice must be given back twice. */
    static void reentry(String label, RedissonClient here, RedissonClient there, LockChecks.Kind kind)
            throws Exception {
        Checks checks = new Checks(label);
        try (Owner first = new Owner(here); Owner second = new Owner(there)) {
            RLock mine = kind.of(here, label + ":twice");
            RLock theirs = kind.of(there, label + ":twice");
            first.does(mine::lock);
            checks.check("its owner may take it again", first.gets(() -> mine.tryLock()));
            checks.check("and holds it twice", first.gets(mine::getHoldCount) == 2);
            first.does(mine::unlock);
            checks.check("one release is not enough", !second.gets(() -> theirs.tryLock()));
            checks.check("it is held once then", first.gets(mine::getHoldCount) == 1);
            first.does(mine::unlock);
            checks.check("two are", second.gets(() -> theirs.tryLock()));
            checks.check("who gave it back does not hold it", first.gets(mine::getHoldCount) == 0);
            second.does(theirs::unlock);
        }
    }

    /** The owner is a number that the caller chooses, not a thread. */
    private static void asynchronous(RedissonClient here, RedissonClient there) throws Exception {
        Checks checks = new Checks("lock, asynchronously");
        RLock mine = here.getLock("async");
        RLock theirs = there.getLock("async");
        mine.lockAsync(10, SECONDS, 41).get(10, SECONDS);
        checks.check("acquire", mine.isHeldByThread(41) && !mine.isHeldByThread(42));
        checks.check("another number is refused", !mine.tryLockAsync(42).get(10, SECONDS));
        var waiting = theirs.tryLockAsync(20, 10, SECONDS, 7).toCompletableFuture();
        Checks.sleepMs(50);
        checks.check("contended acquire waits", !waiting.isDone());
        mine.unlockAsync(41).get(10, SECONDS);
        checks.check("and is served by the release", waiting.get(10, SECONDS) && theirs.isHeldByThread(7));
        checks.check("somebody may end it by force", theirs.forceUnlockAsync().get(10, SECONDS));
        checks.check("and it is free", !mine.isLockedAsync().get(10, SECONDS));
    }

    private static void tokens(RedissonClient here, RedissonClient there) throws Exception {
        Checks checks = new Checks("fenced lock");
        try (Owner first = new Owner(here); Owner second = new Owner(there)) {
            RFencedLock mine = here.getFencedLock("fence");
            RFencedLock theirs = there.getFencedLock("fence");
            long older = first.gets(() -> mine.lockAndGetToken());
            checks.check("a lock comes with a token", older > 0 && mine.getToken() == older, older);
            // Without a time, Redisson's tryLockAndGetToken waits for ever.
            Long none = second.gets(() -> theirs.tryLockAndGetToken(50, TimeUnit.MILLISECONDS));
            checks.check("who is refused gets none", none == null, none);
            var waiting = second.begins(() -> theirs.tryLockAndGetToken(20, 10, SECONDS));
            Checks.sleepMs(50);
            first.does(mine::unlock);
            long newer = Owner.ended(waiting);
            checks.check("the next holder's is greater", newer > older, older, newer);
            checks.check("all can read it", mine.getToken() == newer && theirs.getToken() == newer);
            second.does(theirs::unlock);
            long newest = first.gets(() -> mine.lockAndGetToken());
            checks.check("it never falls, though the lock was free", newest > newer, newer, newest);
            first.does(mine::unlock);
        }
    }
}
