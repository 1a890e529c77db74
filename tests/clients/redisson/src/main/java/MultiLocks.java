import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.function.Function;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;

/** Many locks as one: on several servers, on a majority of them, and on several values of one key. */
final class MultiLocks {
    private static final long LEASE_MS = 300;

    private MultiLocks() {}

    /** Of every server in the list, or of a majority, and not one less. */
    static void onServers() throws Exception {
        List<RedissonClient> clients = new ArrayList<>();
        for (int port : Servers.PORTS) {
            clients.add(Servers.open(port, config -> config.useSingleServer()
                    .setRetryAttempts(0).setConnectionMinimumIdleSize(2)));
        }
        RedissonClient any = clients.get(0);
        new Checks("multi-lock").check("five servers", clients.size() == 5);
        ofAll(any, clients.subList(0, 3));
        ofMost(any, clients);
        for (RedissonClient client : clients) {
            client.shutdown();
        }
    }

    private static void ofAll(RedissonClient any, List<RedissonClient> clients) throws Exception {
        Checks checks = new Checks("multi-lock");
        try (Owner first = new Owner(any); Owner second = new Owner(any)) {
            RLock mine = any.getMultiLock(locks(clients, "all"));
            first.does(mine::lock);
            checks.check("it is held on every server", held(clients, "all") == 3);
            checks.check("contended acquire is refused", !second.gets(() -> mine.tryLock()));
            boolean isRefused = second.isRefused(IllegalMonitorStateException.class, mine::unlock);
            checks.check("release by a non-owner is refused", isRefused);
            Future<Boolean> waiting = second.begins(() -> mine.tryLock(20, 10, SECONDS));
            Checks.sleepMs(100);
            checks.check("contended acquire waits", !waiting.isDone());
            first.does(mine::unlock);
            checks.check("and is served by the release", Owner.ended(waiting));
            checks.check("on every server", held(clients, "all") == 3);
            second.does(mine::unlock);
            checks.check("release", held(clients, "all") == 0);

            RLock one = lock(clients.get(2), "all");
            first.does(one::lock);
            checks.check("one that is held refuses all", !second.gets(() -> mine.tryLock(200, MILLISECONDS)));
            checks.check("and the others are given back", held(clients, "all") == 1);
            first.does(one::unlock);

            long start = System.nanoTime();
            checks.check("a lease", first.gets(() -> mine.tryLock(0, LEASE_MS, MILLISECONDS)));
            checks.check("expiry hands over", second.gets(() -> mine.tryLock(20, 10, SECONDS)));
            long held = Checks.msSince(start);
            checks.check("not before the lease ended", held >= LEASE_MS, held);
            second.does(mine::unlock);
        }
        race(checks, any, name -> any.getMultiLock(locks(clients, name)));
    }

    private static void ofMost(RedissonClient any, List<RedissonClient> clients) throws Exception {
        Checks checks = new Checks("redlock");
        try (Owner first = new Owner(any); Owner second = new Owner(any)) {
            RLock mine = any.getRedLock(locks(clients, "most"));
            checks.check("acquire", first.gets(() -> mine.tryLock(10, 20, SECONDS)));
            checks.check("it is held on five servers", held(clients, "most") == 5);
            boolean isTaken = second.gets(() -> mine.tryLock(200, 10_000, MILLISECONDS));
            checks.check("contended acquire is refused", !isTaken);
            first.does(mine::unlock);
            checks.check("release", held(clients, "most") == 0);

            // Three of five are enough to refuse; two are not.
            for (RedissonClient client : clients.subList(0, 3)) {
                second.does(lock(client, "most")::lock);
            }
            isTaken = first.gets(() -> mine.tryLock(500, 10_000, MILLISECONDS));
            checks.check("a majority held by another refuses", !isTaken);
            second.does(lock(clients.get(0), "most")::unlock);
            checks.check("a minority does not", first.gets(() -> mine.tryLock(10, 20, SECONDS)));
            for (RedissonClient client : List.of(clients.get(1), clients.get(2))) {
                second.does(lock(client, "most")::unlock);
            }
            first.does(mine::unlock);

            kill(Servers.PIDS.get(4));
            List<RedissonClient> alive = clients.subList(0, 4);
            checks.check("acquire with a server lost", first.gets(() -> mine.tryLock(10, 20, SECONDS)));
            checks.check("it is held on the others", held(alive, "most") == 4);
            isTaken = second.gets(() -> mine.tryLock(500, 10_000, MILLISECONDS));
            checks.check("and still excludes", !isTaken);
            first.does(mine::unlock);
            checks.check("and can be released", held(alive, "most") == 0);
        }
    }

    private static void kill(int pid) throws Exception {
        ProcessHandle.of(pid).orElseThrow().destroyForcibly();
        if (!Checks.becomes(() -> isEnded(Path.of("/proc/" + pid + "/stat")))) {
            throw new IllegalStateException("the server " + pid + " does not end");
        }
    }

    /** A process that its parent has not asked about yet is still listed, as a zombie. */
    private static boolean isEnded(Path stat) throws Exception {
        try {
            String text = Files.readString(stat);
            return text.substring(text.lastIndexOf(')')).startsWith(") Z");
        } catch (NoSuchFileException gone) {
            return true;
        }
    }

    /** Several values under one name, locked together by one script. */
    static void ofValues(RedissonClient here, RedissonClient there) throws Exception {
        // In the last millisecond of the key, Redisson takes the lock and leaves the key its deadline. A value
        // that somebody holds beside it keeps the key, so that leases end as fields do.
        Map<String, RLock> beside = new ConcurrentHashMap<>();
        LockChecks.Kind kind = (client, name) -> {
            beside.computeIfAbsent(name, key -> taken(here.getMultiLock(key, List.of("beside"))));
            return client.getMultiLock(name, List.of("a", "b", "c"));
        };
        new LockChecks("values lock", kind).timeless().unforced().run(here, there);
        Checks checks = new Checks("values lock");
        try (Owner first = new Owner(here); Owner second = new Owner(there)) {
            RLock mine = here.getMultiLock("values", List.of("x", "y"));
            RLock meeting = there.getMultiLock("values", List.of("y", "z"));
            RLock passing = there.getMultiLock("values", List.of("z"));
            first.does(mine::lock);
            checks.check("one value in common refuses", !second.gets(() -> meeting.tryLock()));
            checks.check("others are free", second.gets(() -> passing.tryLock()));
            first.does(mine::lock);
            first.does(mine::unlock);
            boolean isHeld = first.gets(mine::isHeldByCurrentThread);
            boolean isTaken = second.gets(() -> meeting.tryLock());
            checks.check("taken twice, one release is not enough", isHeld && !isTaken);
            first.does(mine::unlock);
            checks.check("two releases free it", second.gets(() -> meeting.tryLock()));
            second.does(meeting::unlock);
            checks.check("what was held alone is still held", second.gets(passing::isHeldByCurrentThread));
            second.does(passing::unlock);

            first.does(mine::lock);
            // It says that it ended something only where there is one value: the answer counts them.
            mine.forceUnlock();
            checks.check("somebody may end it by force", second.gets(() -> meeting.tryLock()));
            second.does(meeting::unlock);
            // The script then concatenates a false.
            boolean isRefused = first.isRefused(RedisException.class, mine::forceUnlock);
            checks.check("there is nothing to force then", isRefused);
        }
    }

    private static void race(Checks checks, RedissonClient any, Function<String, RLock> lock)
            throws Exception {
        List<Owner> owners = List.of(new Owner(any), new Owner(any), new Owner(any));
        checks.race(owners, (owner, critical) -> {
            RLock all = lock.apply("race");
            all.lock();
            critical.run();
            all.unlock();
        });
        owners.forEach(Owner::close);
    }

    /** Other kinds have left keys on the first server: these have names of their own. */
    private static RLock lock(RedissonClient client, String name) {
        return client.getLock("several:" + name);
    }

    private static RLock[] locks(List<RedissonClient> clients, String name) {
        return clients.stream().map(client -> lock(client, name)).toArray(RLock[]::new);
    }

    private static RLock taken(RLock lock) {
        lock.lock(60, SECONDS);
        return lock;
    }

    private static long held(List<RedissonClient> clients, String name) {
        return clients.stream().filter(client -> lock(client, name).isLocked()).count();
    }
}
