import java.util.List;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.RedisClusterConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/** One lock client on Spring Data Redis: the argument says which. */
final class SpringLocks {
    private SpringLocks() {}

    public static void main(String[] args) {
        try {
            switch (args[0]) {
                case "integration" -> IntegrationLocks.run(connections(), 1);
                // The keys of six locks are on all three nodes.
                case "integration-nodes" -> IntegrationLocks.run(connectionsOfCluster(), 6);
                case "shedlock" -> shedLocks();
                default -> throw new IllegalArgumentException(args[0]);
            }
            System.out.println("done");
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    /** Connections to the server that the environment names. */
    static LettuceConnectionFactory connections() {
        int port = Integer.parseInt(System.getenv("REDLATCH_PORT"));
        LettuceConnectionFactory factory = new LettuceConnectionFactory(System.getenv("REDLATCH_HOST"), port);
        factory.afterPropertiesSet();
        factory.start();
        return factory;
    }

    /** Connections to the cluster of that server. */
    private static LettuceConnectionFactory connectionsOfCluster() {
        String node = System.getenv("REDLATCH_HOST") + ":" + System.getenv("REDLATCH_PORT");
        var factory = new LettuceConnectionFactory(new RedisClusterConfiguration(List.of(node)));
        factory.afterPropertiesSet();
        factory.start();
        return factory;
    }

    private static void shedLocks() throws Exception {
        LettuceConnectionFactory connections = connections();
        for (boolean isSafe : new boolean[] {true, false}) {
            String name = isSafe ? "safe" : "plain";
            var provider = new RedisLockProvider.Builder(connections)
                    .environment(name).safeUpdate(isSafe).build();
            ShedLocks.run(name, isSafe, provider, job -> remainingMs(connections, name + ":" + job));
        }
        connections.destroy();
    }

    private static long remainingMs(LettuceConnectionFactory connections, String name) {
        try (var connection = connections.getConnection()) {
            var keys = connection.keyCommands().keys(("*" + name).getBytes());
            return connection.keyCommands().pTtl(keys.iterator().next());
        }
    }
}
