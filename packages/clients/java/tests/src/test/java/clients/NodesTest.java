package clients;

import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import redis.clients.jedis.Connection;
import redis.clients.jedis.HostAndPort;

/** Scenarios on two nodes on etcd, which clients find as Sentinels, and of which the leader is killed. */
@Execution(ExecutionMode.SAME_THREAD)
class NodesTest {
    private static Servers.Nodes nodes;

    @BeforeAll
    static void start() {
        nodes = new Servers.Nodes();
    }

    @AfterAll
    static void end() {
        if (nodes != null) {
            nodes.close();
        }
    }

    @TestFactory
    Stream<DynamicTest> lettuce() {
        return on(Library.LETTUCE_3);
    }

    @TestFactory
    Stream<DynamicTest> jedis() {
        return on(Library.JEDIS_2);
    }

    private static Stream<DynamicTest> on(Library library) {
        Stream<Scenario> scenarios = Stream.concat(Scenario.by("sentinel", "redlatch"), Scenario.on("redlatch-replicated"));
        return scenarios.map(scenario -> ConformanceTest.test(library, scenario, () -> {
            Where leader = Where.port(nodes.leader());
            ConformanceTest.flush(leader);
            Beside server = new Beside(
                    () -> new Connection(new HostAndPort("127.0.0.1", nodes.leader()), Beside.config(leader).build()));
            Where where = Where.sentinel(nodes.ports.get(1), "mymaster");
            ConformanceTest.run(library, scenario, where, server, nodes::killLeader);
        }));
    }
}
