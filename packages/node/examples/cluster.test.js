import { Cluster } from "ioredis";
import Redlock from "redlock";
import { expect, onTestFinished, test } from "vitest";
import { start } from "redlatch";

test.each([true, false])("a failover of a master that replicates: %s", async (replicates) => {
  const server = await start({ nodes: 6, args: ["--cluster-enabled", "yes", "--cluster-replicas", "1"] });
  onTestFinished(() => server.stop());
  const orders = server.namespace();
  const locks = () => {
    const password = decodeURIComponent(new URL(orders.url).password);
    const nodes = server.ports.map((port) => ({ host: "127.0.0.1", port }));
    const cluster = new Cluster(nodes, { redisOptions: { password }, slotsRefreshTimeout: 10_000 });
    onTestFinished(() => cluster.disconnect());
    return new Redlock([cluster], { retryCount: 0 });
  };

  await orders.clock.freeze();
  await orders.nodes.replication(3, replicates);
  await locks().lock("a", 60_000); // the slot of a is on node 3
  await orders.nodes.crash(3);
  await orders.clock.advance(15_001);
  const again = locks().lock("a", 60_000);
  await (replicates ? expect(again).rejects.toThrow() : again); // the replica has not heard of the first one
  expect((await orders.check()).map((finding) => finding.rule)).toEqual(replicates ? [] : ["two-holders"]);
});
