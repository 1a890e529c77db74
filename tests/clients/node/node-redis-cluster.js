// node-redis in cluster mode: SET NX PX and a script by hand, transactions, shard channels.
import { createCluster } from "redis";
import { HOST, LEASE_MS, PORT, PORTS, check, done, pause, race, refusal } from "./checks.js";

const RELEASE = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
const client = createCluster({ rootNodes: [{ url: `redis://${HOST}:${PORT}` }] });
await client.connect();
const addresses = client.masters.map((node) => node.address).sort();
check("the nodes are those that share the slots", addresses.join() === PORTS.map((port) => `${HOST}:${port}`).sort().join(), addresses);

const acquire = (name, token, lease) => client.set(name, token, { NX: true, PX: lease });
const release = (name, token) => client.eval(RELEASE, { keys: [name], arguments: [token] });
check("acquire", (await acquire("stock", "me", 10_000)) === "OK");
check("contended acquire is refused", (await acquire("stock", "you", 10_000)) === null);
check("release by a non-owner is refused", (await release("stock", "you")) === 0);
check("release", (await release("stock", "me")) === 1);
check("a short lease", (await acquire("lease", "me", LEASE_MS)) === "OK");
await pause(LEASE_MS + 50);
check("expiry hands over", (await acquire("lease", "you", 10_000)) === "OK");

const executed = await client.multi().set("{t}1", "x").get("{t}1").exec();
check("a transaction in a slot", executed.join() === "OK,x", executed);
// Slots 15495 and 15496, which two nodes hardly part: across nodes it is MOVED.
const error = await refusal(client.multi().set("a", "x").set("llc", "y").exec());
check("none in two", error?.message.startsWith("CROSSSLOT"), error);

const heard = new Promise((resolve) => client.sSubscribe("shard", resolve));
while ((await client.sPublish("shard", "freed")) === 0) await pause(5);
check("a shard channel", (await heard) === "freed");

await race(async (critical) => {
  while ((await acquire("race", "me", 10_000)) === null) await pause(1);
  await critical();
  await release("race", "me");
});
client.destroy();
done();
