package clients;

import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;

/** Scenarios on two nodes on etcd, which clients find as Sentinels, and of which the leader is killed. */
@Execution(ExecutionMode.SAME_THREAD)
class NodesTest {
    @TestFactory
    Stream<DynamicTest> lettuce() {
        return on(Library.LETTUCE_3);
    }

    @TestFactory
    Stream<DynamicTest> jedis() {
        return on(Library.JEDIS_2);
    }

    private static Stream<DynamicTest> on(Library library) {
        Servers.Nodes nodes = new Servers.Nodes();
        Stream<Scenario> scenarios = Stream.concat(Scenario.by("sentinel", "redlatch"), Scenario.on("redlatch-replicated"));
        return scenarios.map(scenario -> ConformanceTest.test(library, scenario, () -> {
            // Whichever node is asked, the leader answers.
            Where beside = Where.port(nodes.leader());
            ConformanceTest.flush(beside);
            Beside server = new Beside(() -> new redis.clients.jedis.Connection(
                    new redis.clients.jedis.HostAndPort("127.0.0.1", nodes.leader()), Beside.config(beside).build()));
            Where where = Where.sentinel(nodes.ports.get(1), "mymaster");
            ConformanceTest.run(library, scenario, where, server, nodes::killLeader);
        })).onClose(nodes::close);
    }
}
