import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.List;
import java.util.concurrent.Future;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RedissonClient;

/** The latch: all wait until it has been counted down. */
final class Latches {
    private Latches() {}

    static void run(RedissonClient here, RedissonClient there) throws Exception {
        Checks checks = new Checks("countdown latch");
        RCountDownLatch mine = here.getCountDownLatch("latch");
        RCountDownLatch theirs = there.getCountDownLatch("latch");
        checks.check("a latch that is not set is open", theirs.getCount() == 0 && theirs.await(1, SECONDS));
        checks.check("it is set once", mine.trySetCount(2) && !theirs.trySetCount(5));
        checks.check("all see it", theirs.getCount() == 2);
        long start = System.nanoTime();
        boolean isOpen = theirs.await(100, MILLISECONDS);
        checks.check("a wait that is too short ends", !isOpen && Checks.msSince(start) >= 98);
        List<Owner> waiters = List.of(new Owner(here), new Owner(there), new Owner(there));
        List<Future<Boolean>> waits = waiters.stream().map(waiter -> {
            RCountDownLatch latch = waiter.client.getCountDownLatch("latch");
            return waiter.begins(() -> latch.await(20, SECONDS));
        }).toList();
        Checks.sleepMs(50);
        theirs.countDown();
        Checks.sleepMs(100);
        checks.check("one count down of two opens nothing", waits.stream().noneMatch(Future::isDone));
        checks.check("and is seen", mine.getCount() == 1);
        start = System.nanoTime();
        mine.countDown();
        for (Future<Boolean> wait : waits) {
            checks.check("who waits is let through", Owner.ended(wait));
        }
        long waited = Checks.msSince(start);
        checks.check("at once", waited < 5_000, waited);
        theirs.countDown();
        checks.check("it does not go below nothing", mine.getCount() == 0);
        checks.check("it can be set again", theirs.trySetCount(1) && mine.delete() && mine.getCount() == 0);
        waiters.forEach(Owner::close);
    }
}
