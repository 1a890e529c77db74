// Takes locks of ZooKeeper as Curator does, with InterProcessMutex.
//
// Its argument names the servers. A line of its input is a turn: `acquire` or `cycle`, clients, seconds. It answers `ready` when
// all clients have connected; when the time is over, the operations, the seconds that they took, and the median and the 99th
// percentile of one in microseconds; `done` when no lock is left.
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Scanner;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.LongStream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

public class Curator {
    public static void main(String[] servers) throws Exception {
        for (var in = new Scanner(System.in); in.hasNext(); ) {
            turn(servers[0], in.next(), in.nextInt(), (long) (in.nextDouble() * 1e9));
        }
    }

    static void turn(String servers, String load, int clients, long nanoseconds) throws Exception {
        List<CuratorFramework> sessions = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            // The parents of locks stay: ZooKeeper would remove them during the turns of others.
            var session = CuratorFrameworkFactory.builder().connectString(servers).retryPolicy(new RetryOneTime(100))
                    .dontUseContainerParents().build();
            session.start();
            sessions.add(session);
        }
        for (var session : sessions) session.blockUntilConnected();
        System.out.println("ready");

        ExecutorService threads = Executors.newFixedThreadPool(clients);
        long begun = System.nanoTime();
        List<Callable<long[]>> all = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            int client = i;
            all.add(() -> {
                var taken = LongStream.builder();
                for (int n = 0; System.nanoTime() - begun < nanoseconds; n++) {
                    long start = System.nanoTime();
                    operate(sessions.get(client), load, client, n);
                    taken.add(System.nanoTime() - start);
                }
                return taken.build().toArray();
            });
        }
        var times = LongStream.empty();
        for (Future<long[]> taken : threads.invokeAll(all)) {
            times = LongStream.concat(times, Arrays.stream(taken.get()));
        }
        double elapsed = (System.nanoTime() - begun) / 1e9;
        long[] sorted = times.sorted().toArray();
        long p50 = sorted[sorted.length / 2] / 1000, p99 = sorted[sorted.length * 99 / 100] / 1000;
        System.out.println(sorted.length + " " + elapsed + " " + p50 + " " + p99);
        threads.invokeAll(sessions.stream().map(session -> Executors.callable(session::close)).toList());
        threads.shutdown();
        System.out.println("done");
    }

    static void operate(CuratorFramework session, String load, int client, int n) throws Exception {
        // A new name costs ZooKeeper a node more, so a client that releases its lock takes the same again.
        boolean isCycle = load.equals("cycle");
        var mutex = new InterProcessMutex(session, "/lock/" + client + (isCycle ? "" : "-" + n));
        mutex.acquire();
        if (isCycle) mutex.release();
    }
}
