// A cluster of three nodes in one process: channels, which all nodes carry, under the client that the argument names.
import Redis from "ioredis";
import { createCluster } from "redis";
import { HOST, PORT, check, done, until } from "./checks.js";

const CHANNELS = Array.from({ length: 10 }, (_, number) => `channel ${number}`);

/** Publishes to each channel, by the cluster's client, what the subscribers of `heard` have not said before. */
async function allAreHeard(heard, publish) {
  await Promise.all(CHANNELS.map((channel) => publish(channel, `to ${channel}`)));
  await until(() => heard.length >= CHANNELS.length);
  const expected = CHANNELS.map((channel) => `${channel}: to ${channel}`);
  check("ten channels of ten are heard", heard.sort().join() === expected.join(), heard);
}

async function ioredis() {
  const client = new Redis.Cluster([{ host: HOST, port: PORT }]);
  const heard = [];
  client.on("message", (channel, message) => heard.push(`${channel}: ${message}`));
  await client.subscribe(...CHANNELS);
  await allAreHeard(heard, (channel, message) => client.publish(channel, message));
  client.disconnect();
}

async function nodeRedis() {
  const client = createCluster({ rootNodes: [{ url: `redis://${HOST}:${PORT}` }] });
  await client.connect();
  const heard = [];
  await client.subscribe(CHANNELS, (message, channel) => heard.push(`${channel}: ${message}`));
  await allAreHeard(heard, (channel, message) => client.publish(channel, message));

  const ofShard = [];
  await client.sSubscribe("a", (message) => ofShard.push(message));
  // Slot 15495 is that of the channel, and on the third node.
  const move = (node) => client.sendCommand("a", false, ["TEST.SLOT", "MOVE", "15495", "TO", String(node)]);
  for (const node of [1, 2, 3]) {
    await move(node);
    await until(async () => (await client.sPublish("a", `from ${node}`)) === 1);
    await until(() => ofShard.includes(`from ${node}`));
    check(`a shard channel is followed to node ${node}`, true);
  }
  client.destroy();
}

await { ioredis, "node-redis": nodeRedis }[process.argv[2]]();
done();
