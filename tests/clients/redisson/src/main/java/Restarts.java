import static java.util.concurrent.TimeUnit.SECONDS;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import org.redisson.RedissonSpinLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisResponseTimeoutException;

/** Locks through a kill of their server, and through the quarantine after one. The server is started again. */
final class Restarts {
    /** The server that keeps a journal, and the one that forgets its keys. */
    private static final int KEEPS = 0;
    private static final int FORGETS = 1;
    private static final long WAIT_MAX_S = 25;
    /** It renews every third of this. */
    private static final long WATCHDOG_MS = 6_000;

    private final int port;
    private final int pid;
    private final RedissonClient here;
    private final RedissonClient there;
    private final List<Contest> contests;

    private Restarts(int number) {
        port = Servers.PORTS.get(number);
        pid = Servers.PIDS.get(number);
        here = Servers.open(port, config -> config.setLockWatchdogTimeout(WATCHDOG_MS));
        there = Servers.open(port, config -> {});
        contests = List.of(
                new Contest("lock", RedissonClient::getLock),
                new Contest("fair lock", RedissonClient::getFairLock),
                new Contest("spin lock", RedissonClient::getSpinLock),
                new Contest("fenced lock", RedissonClient::getFencedLock),
                new Contest("read lock", Restarts::read, Restarts::write),
                new Contest("write lock", Restarts::write, Restarts::read));
    }

    static void run() throws Exception {
        new Restarts(KEEPS).restart();
        new Restarts(FORGETS).quarantine();
    }

    private void restart() throws Exception {
        for (Contest contest : contests) {
            contest.owner.does(contest.mine::lock);
            contest.checks.check("acquire", contest.isRefused(contest.theirs));
        }
        killUnderWaiters();
        for (Contest contest : contests) {
            contest.isStillHeld();
        }
        for (Contest contest : contests) {
            contest.isExtended();
        }
        for (Contest contest : contests) {
            contest.goesOn();
        }
        close();
    }

    private void quarantine() throws Exception {
        for (Contest contest : contests) {
            contest.owner.does(() -> contest.mine.lock(4, SECONDS));
            contest.checks.check("acquire what will be forgotten", contest.isRefused(contest.theirs));
        }
        killUnderWaiters();
        for (Contest contest : contests) {
            contest.isForgotten();
        }
        try (Connection watcher = new Connection(Servers.HOST, port)) {
            long left = info(watcher, "quarantine_left_ms");
            new Checks("quarantine").check("they were asked in quarantine", left > 0, left);
            isServedAfterIt(watcher);
        }
        for (Contest contest : contests) {
            contest.isAsEver();
        }
        close();
    }

    private void isServedAfterIt(Connection watcher) throws Exception {
        for (Contest contest : contests) {
            contest.wait(contest.fresh);
        }
        boolean isEarly = false;
        while (contests.stream().anyMatch(Contest::isWaiting)) {
            long there = 0;
            for (Contest contest : contests) {
                // HLEN counts what is there. The quarantine is asked for after it: that was granted in it.
                there += (Long) watcher.ask("HLEN", contest.theirs.getName());
                there += (Long) watcher.ask("HLEN", contest.fresh.getName());
            }
            isEarly |= there > 0 && info(watcher, "quarantine_active") == 1;
            Checks.sleepMs(10);
        }
        boolean isOver = info(watcher, "quarantine_active") == 0;
        new Checks("quarantine").check("nobody was served in it", isOver && !isEarly, isOver, isEarly);
    }

    private void killUnderWaiters() throws Exception {
        for (Contest contest : contests) {
            if (!contest.isPolled()) {
                contest.isAwaited();
            }
        }
        // Redisson does not send a script again whose reply is missing: the waiters must have theirs before the kill.
        Checks.sleepMs(200);
        kill();
        for (Contest contest : contests) {
            if (contest.isPolled()) {
                contest.wait(contest.theirs);
            }
        }
    }

    /** Returns when another process answers in the place of the one that is killed. */
    private void kill() throws Exception {
        ProcessHandle.of(pid).orElseThrow().destroyForcibly();
        new Checks("server").check("it is started again", Checks.becomes(() -> {
            try (Connection connection = new Connection(Servers.HOST, port)) {
                return info(connection, "process_id") != pid;
            } catch (IOException none) {
                return false;
            }
        }));
    }

    private void close() {
        contests.forEach(Contest::close);
        here.shutdown();
        there.shutdown();
    }

    private static long info(Connection connection, String field) throws IOException {
        return connection.ask("INFO").toString().lines()
                .filter(line -> line.startsWith(field + ":"))
                .map(line -> Long.parseLong(line.substring(field.length() + 1)))
                .findFirst().orElseThrow();
    }

    private static RLock read(RedissonClient client, String name) {
        return client.getReadWriteLock(name).readLock();
    }

    private static RLock write(RedissonClient client, String name) {
        return client.getReadWriteLock(name).writeLock();
    }

    /** A lock of one kind: its owner, somebody who waits for it, and somebody who does not. */
    private final class Contest {
        final Checks checks;
        final Owner owner = new Owner(here);
        final RLock mine;
        final RLock theirs;
        /** One that nobody has had. */
        final RLock fresh;
        private final List<Owner> waiters = new ArrayList<>();
        private final List<Future<Boolean>> waits = new ArrayList<>();
        private long left;

        Contest(String label, LockChecks.Kind kind) {
            this(label, kind, kind);
        }

        /** The rivals' kind is one that the owner's excludes. */
        Contest(String label, LockChecks.Kind kind, LockChecks.Kind rivals) {
            checks = new Checks(label);
            mine = kind.of(here, label);
            theirs = rivals.of(there, label);
            fresh = rivals.of(there, label + ":fresh");
        }

        boolean isRefused(RLock lock) throws Exception {
            try (Owner other = new Owner(there)) {
                return !other.gets(() -> lock.tryLock());
            }
        }

        void wait(RLock lock) {
            Owner waiter = new Owner(there);
            waiters.add(waiter);
            waits.add(waiter.begins(() -> {
                try {
                    return lock.tryLock(WAIT_MAX_S, 10, SECONDS);
                } catch (RedisResponseTimeoutException missing) {
                    // It was asked over a connection that the kill had ended, and Redisson does not ask again.
                    return lock.tryLock(WAIT_MAX_S, 10, SECONDS);
                }
            }));
        }

        boolean isWaiting() {
            return !waits.stream().allMatch(Future::isDone);
        }

        /** Whether who waits asks again and again, and so nearly always awaits a reply. */
        boolean isPolled() {
            return theirs instanceof RedissonSpinLock;
        }

        /** Begins to wait; returns when the release would be heard of. */
        void isAwaited() throws Exception {
            wait(theirs);
            try (Connection connection = new Connection(Servers.HOST, port)) {
                String channels = "*{" + theirs.getName() + "}*";
                boolean isHeard = Checks.becomes(
                        () -> !((List<?>) connection.ask("PUBSUB", "CHANNELS", channels)).isEmpty());
                checks.check("a waiter subscribes", isHeard);
            }
        }

        void isStillHeld() throws Exception {
            boolean isHeld = owner.gets(mine::isHeldByCurrentThread);
            checks.check("after a kill it is still held", isHeld && isRefused(theirs), isHeld);
            left = mine.remainTimeToLive();
        }

        void isExtended() throws Exception {
            checks.check("its watchdog extends it", Checks.becomes(() -> mine.remainTimeToLive() > left), left);
        }

        void goesOn() throws Exception {
            checks.check("its owner enters it again", owner.gets(() -> mine.tryLock()));
            owner.does(mine::unlock);
            checks.check("who waited before the kill still waits", isRefused(theirs) && isWaiting());
            owner.does(mine::unlock);
            isServed();
            checks.check("release", !mine.isLocked());
        }

        void isForgotten() throws Exception {
            checks.check("in quarantine it is refused", isRefused(theirs) && isRefused(fresh));
            boolean isRefused = owner.isRefused(IllegalMonitorStateException.class, mine::unlock);
            checks.check("its owner learns that it is lost", isRefused);
        }

        void isAsEver() throws Exception {
            isServed();
            owner.does(mine::lock);
            checks.check("then it is as ever", isRefused(theirs));
            owner.does(mine::unlock);
        }

        /** Whoever waits is served, and releases. */
        private void isServed() throws Exception {
            for (int at = 0; at < waits.size(); at++) {
                checks.check("who waits is served", Owner.ended(waits.get(at)));
                waiters.get(at).does((at == 0 ? theirs : fresh)::unlock);
            }
        }

        void close() {
            owner.close();
            waiters.forEach(Owner::close);
        }
    }
}
