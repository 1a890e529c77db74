import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.Protocol;

/** The servers that the environment names, and clients of them. */
final class Servers {
    /** Changes what a client does by default. */
    interface Setup {
        void change(Config config);
    }

    static final List<Integer> PORTS = numbers("REDLATCH_PORTS");
    static final List<Integer> PIDS = numbers("REDLATCH_PIDS");
    static final String HOST = System.getenv("REDLATCH_HOST");

    /** Whether each server is a cluster of one node. */
    private static boolean areClusters;

    private Servers() {}

    /** From now on, clients are in cluster mode. */
    static void becomeClusters() {
        areClusters = true;
    }

    /** A client with everything as it comes. */
    static RedissonClient open() {
        return open(config -> {});
    }

    /** A client of the first server. */
    static RedissonClient open(Setup setup) {
        return open(PORTS.get(0), setup);
    }

    /** A client of the server on that port. */
    static RedissonClient open(int port, Setup setup) {
        Config config = new Config();
        String address = "redis://" + HOST + ":" + port;
        if (areClusters) {
            config.useClusterServers().addNodeAddress(address);
        } else {
            config.useSingleServer().setAddress(address);
        }
        setup.change(config);
        return Redisson.create(config);
    }

    /** A connection to the first server for other commands. */
    static Connection connect() throws IOException {
        return new Connection(HOST, PORTS.get(0));
    }

    /** RESP3, and the text of every script with every call. */
    static void modern(Config config) {
        config.setProtocol(Protocol.RESP3).setUseScriptCache(false);
    }

    private static List<Integer> numbers(String variable) {
        return Arrays.stream(System.getenv(variable).split(",")).map(Integer::valueOf).toList();
    }
}
