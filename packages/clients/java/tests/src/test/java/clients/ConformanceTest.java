package clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.redlatch.junit.Redlatch;
import dev.redlatch.junit.RedlatchServer;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.providers.ClusterConnectionProvider;
import redis.clients.jedis.util.JedisClusterCRC16;

/** Every scenario of {@code ../../conformance.json}, through both libraries, on every server and connection that it names. */
class ConformanceTest {
    /** Those that are enough where the version of the protocol makes no difference. */
    private static final List<Library> LIBRARIES = List.of(Library.LETTUCE_3, Library.JEDIS_2);
    private static RedlatchServer server;
    private static RedlatchServer cluster;
    private static RedlatchServer clusterWithReplicas;
    /** A bit more than the default of {@code cluster-node-timeout}. */
    private static final Duration FAILOVER = Duration.ofMillis(15_001);

    @BeforeAll
    static void start() {
        server = RedlatchServer.start(1);
        cluster = RedlatchServer.start(3, "--cluster-enabled", "yes");
        clusterWithReplicas = RedlatchServer.start(6, "--cluster-enabled", "yes", "--cluster-replicas", "1");
    }

    @AfterAll
    static void end() {
        server.close();
        cluster.close();
        clusterWithReplicas.close();
    }

    @Test
    void eachScenarioIsRunSomewhere() {
        Set<String> known = 
                Set.of("hostile", "plain", "redlatch", "redlatch-cluster", "redlatch-replicated", "redlatch-with-journal");
        Set<String> names = Scenario.all().stream().map(Scenario::name).collect(Collectors.toSet());
        assertEquals(Scenario.all().size(), names.size());
        assertTrue(names.size() >= 40);
        assertTrue(Scenario.all().stream().allMatch(each -> known.containsAll(each.servers()) && !each.steps().isEmpty()));
    }

    @TestFactory
    Stream<DynamicTest> redlatch() {
        Stream<Library> libraries = Stream.of(Library.values());
        return libraries.flatMap(library -> Scenario.on("redlatch").map(scenario -> test(library, scenario, () -> {
            try (Redlatch namespace = server.namespace()) {
                run(library, scenario, Where.of(namespace), Beside.to(Where.of(namespace)), null);
            }
        })));
    }

    @TestFactory
    Stream<DynamicTest> hostile() {
        Servers.Peers peers = new Servers.Peers(Where.of(server.namespace()).port());
        return Scenario.on("hostile").flatMap(scenario -> scenario.peers().stream().flatMap(peer -> {
            Where where = Where.port(peers.port(peer));
            return Stream.of(Library.values()).map(library -> DynamicTest.dynamicTest(
                    library + " " + scenario.name() + " " + peer, () -> run(library, scenario, where, Beside.to(where), null)));
        })).onClose(peers::close);
    }

    @TestFactory
    Stream<DynamicTest> cluster() {
        Stream<Library> libraries = LIBRARIES.stream();
        return libraries.flatMap(library -> Scenario.by("cluster", "redlatch").map(scenario -> test(library, scenario, () -> {
            try (Redlatch namespace = cluster.namespace()) {
                Where where = Where.cluster(namespace);
                run(library, scenario, where, new Beside(() -> nodeOfKey(where)), null);
            }
        })));
    }

    @TestFactory
    Stream<DynamicTest> clusterWhoseMastersCrash() {
        Stream<Library> libraries = LIBRARIES.stream();
        return libraries.flatMap(library -> Scenario.on("redlatch-cluster").map(scenario -> test(library, scenario, () -> {
            try (Redlatch namespace = clusterWithReplicas.namespace()) {
                Where where = Where.cluster(namespace);
                run(library, scenario, where, new Beside(() -> nodeOfKey(where)), () -> {
                    namespace.nodes().crash(1 + clusterWithReplicas.ports().indexOf(masterOfKey(where).getPort()));
                    namespace.clock().advance(FAILOVER);
                });
            }
        })));
    }

    @TestFactory
    @Execution(ExecutionMode.SAME_THREAD)
    Stream<DynamicTest> lettuceOnRedis() {
        return plain(Library.LETTUCE_3, Servers.redis());
    }

    @TestFactory
    @Execution(ExecutionMode.SAME_THREAD)
    Stream<DynamicTest> jedisOnRedis() {
        return plain(Library.JEDIS_2, Servers.redis());
    }

    @TestFactory
    @Execution(ExecutionMode.SAME_THREAD)
    Stream<DynamicTest> lettuceOnValkey() {
        return plain(Library.LETTUCE_2, Servers.valkey());
    }

    @TestFactory
    @Execution(ExecutionMode.SAME_THREAD)
    Stream<DynamicTest> jedisOnValkey() {
        return plain(Library.JEDIS_3, Servers.valkey());
    }

    @TestFactory
    Stream<DynamicTest> killedAndStartedAgain() {
        Stream<Library> libraries = LIBRARIES.stream();
        String server = "redlatch-with-journal";
        return libraries.flatMap(library -> Scenario.on(server).map(scenario -> test(library, scenario, () -> {
            try (Servers.Running process = Servers.withJournal()) {
                Where where = Where.port(process.port);
                run(library, scenario, where, Beside.to(where), process::restart);
            }
        })));
    }

    @TestFactory
    @Execution(ExecutionMode.SAME_THREAD)
    Stream<DynamicTest> sentinelOfRedis() {
        String program = Servers.redis();
        Servers.Running watched = Servers.plain(program);
        Servers.Running sentinel = Servers.sentinel(program, watched.port);
        Stream<Library> libraries = LIBRARIES.stream();
        return libraries.flatMap(library -> Scenario.by("sentinel", "plain").map(scenario -> test(library, scenario, () -> {
            Where beside = Where.port(watched.port);
            flush(beside);
            run(library, scenario, Where.sentinel(sentinel.port, "locks"), Beside.to(beside), null);
        }))).onClose(() -> {
            sentinel.close();
            watched.close();
        });
    }

    private static Stream<DynamicTest> plain(Library library, String program) {
        Servers.Running process = Servers.plain(program);
        Where where = Where.port(process.port);
        return Scenario.on("plain").map(scenario -> test(library, scenario, () -> {
            flush(where);
            run(library, scenario, where, Beside.to(where), null);
        })).onClose(process::close);
    }

    static DynamicTest test(Library library, Scenario scenario, org.junit.jupiter.api.function.Executable run) {
        return DynamicTest.dynamicTest(library + " " + scenario.name(), run);
    }

    static void run(Library library, Scenario scenario, Where where, Beside server, Runnable restart) {
        try (server; Library.Client client = library.client(where, scenario.replyTimeout())) {
            if (scenario.peers().isEmpty() && scenario.budget().compareTo(Library.BUDGET) < 0) {
                // The first connection of a process takes long on a busy machine: it has no part in a small budget.
                client.locks.lockedBy("k");
            }
            new Runner(client.locks.budget(scenario.budget()), server, restart).run(scenario.steps());
        }
    }

    static void flush(Where where) {
        try (Beside beside = Beside.to(where)) {
            beside.ask("FLUSHALL");
        }
    }

    private static Connection nodeOfKey(Where where) {
        return new Connection(masterOfKey(where), Beside.config(where).build());
    }

    private static HostAndPort masterOfKey(Where where) {
        Set<HostAndPort> known = Set.of(new HostAndPort(where.host(), where.port()));
        try (ClusterConnectionProvider found = new ClusterConnectionProvider(known, Beside.config(where).build())) {
            return found.getNode(JedisClusterCRC16.getSlot("k"));
        }
    }
}
