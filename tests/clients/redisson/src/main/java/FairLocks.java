import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** The fair lock: who came first is served first, unless it has died in the queue. */
final class FairLocks {
    private static final int WAITERS = 4;
    /** How long a waiter that does not come back keeps its place. */
    private static final long PATIENCE_MS = 700;
    private static final Checks CHECKS = new Checks("fair lock");

    private FairLocks() {}

    static void run(RedissonClient here, RedissonClient there) throws Exception {
        new LockChecks("fair lock", RedissonClient::getFairLock).lenient().run(here, there);
        ReentrantLocks.reentry("fair lock", here, there, RedissonClient::getFairLock);
        order(here, there);
        impatience(here, there);
        deadWaiter(here);
    }

    private static void order(RedissonClient here, RedissonClient there) throws Exception {
        RLock held = here.getFairLock("order");
        List<Integer> served = Collections.synchronizedList(new ArrayList<>());
        List<Owner> waiters = new ArrayList<>();
        List<Future<Void>> waits = new ArrayList<>();
        try (Owner holder = new Owner(here)) {
            holder.does(held::lock);
            for (int number = 0; number < WAITERS; number++) {
                Owner waiter = new Owner(number % 2 == 0 ? there : here);
                waiters.add(waiter);
                waits.add(waiter.begins(waitFor("order", waiter, served, number)));
                int length = number + 1;
                boolean isQueued = Checks.becomes(() -> queued(here, "order") == length);
                CHECKS.check("waiter " + number + " queues", isQueued);
            }
            RLock other = there.getFairLock("order");
            CHECKS.check("who does not wait is refused", !holder.gets(() -> other.tryLock()));
            holder.does(held::unlock);
            for (Future<Void> wait : waits) {
                Owner.ended(wait);
            }
        }
        CHECKS.check("they are served as they came", served.equals(List.of(0, 1, 2, 3)), served);
        CHECKS.check("and nobody is left in the queue", queued(here, "order") == 0);
        waiters.forEach(Owner::close);
    }

    private static Callable<Void> waitFor(
            String name, Owner waiter, List<Integer> served, int number) {
        return () -> {
            RLock lock = waiter.client.getFairLock(name);
            lock.lock(10, SECONDS);
            served.add(number);
            lock.unlock();
            return null;
        };
    }

    private static void impatience(RedissonClient here, RedissonClient there) throws Exception {
        try (Owner holder = new Owner(here); Owner waiter = new Owner(there); Owner next = new Owner(there)) {
            RLock held = here.getFairLock("impatience");
            RLock wanted = there.getFairLock("impatience");
            holder.does(held::lock);
            Future<Boolean> wait = waiter.begins(() -> wanted.tryLock(300, MILLISECONDS));
            CHECKS.check("an impatient waiter queues", Checks.becomes(() -> queued(here, "impatience") == 1));
            Future<Boolean> patient = next.begins(() -> wanted.tryLock(20, 10, SECONDS));
            CHECKS.check("another one behind it", Checks.becomes(() -> queued(here, "impatience") == 2));
            CHECKS.check("the first gives up", !Owner.ended(wait));
            CHECKS.check("and leaves the queue", Checks.becomes(() -> queued(here, "impatience") == 1));
            long start = System.nanoTime();
            holder.does(held::unlock);
            boolean isServed = Owner.ended(patient);
            long waited = Checks.msSince(start);
            CHECKS.check("the second is served at once", isServed && waited < 5_000, isServed, waited);
            next.does(wanted::unlock);
        }
    }

    /** The first in the queue has died: who comes next gets the lock once that one's place has lapsed. */
    private static void deadWaiter(RedissonClient here) throws Exception {
        Servers.Setup impatient = config -> config.setFairLockWaitTimeout(PATIENCE_MS);
        RedissonClient dying = Servers.open(impatient);
        RedissonClient living = Servers.open(impatient);
        RLock held = here.getFairLock("dead waiter");
        try (Owner holder = new Owner(here); Owner dead = new Owner(dying); Owner heir = new Owner(living)) {
            CHECKS.check("a holder", holder.gets(() -> held.tryLock(0, 1_500, MILLISECONDS)));
            // Who says for how long it would wait keeps its place for so long.
            dead.begins(() -> {
                dying.getFairLock("dead waiter").lock(10, SECONDS);
                return null;
            });
            CHECKS.check("a waiter", Checks.becomes(() -> queued(here, "dead waiter") == 1));
            dying.shutdown();
            RLock wanted = living.getFairLock("dead waiter");
            Future<Boolean> wait = heir.begins(() -> wanted.tryLock(20, 10, SECONDS));
            CHECKS.check("another one behind it", Checks.becomes(() -> queued(here, "dead waiter") == 2));
            long start = System.nanoTime();
            holder.does(held::unlock);
            Checks.sleepMs(100);
            CHECKS.check("the dead one's place is kept for a while", !wait.isDone() && !held.isLocked());
            boolean isServed = Owner.ended(wait);
            long waited = Checks.msSince(start);
            CHECKS.check("who is alive is served in the end", isServed && waited < 10_000, isServed, waited);
            CHECKS.check("and the dead one is out of the queue", queued(here, "dead waiter") == 0);
            heir.does(wanted::unlock);
        } finally {
            living.shutdown();
        }
    }

    private static int queued(RedissonClient client, String name) {
        return client.getDeque("redisson_lock_queue:{" + name + "}").size();
    }
}
