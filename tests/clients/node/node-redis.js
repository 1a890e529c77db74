// node-redis by hand, in both protocols: SET NX PX, the compare-and-delete script, and a fencing counter.
import { randomUUID } from "node:crypto";
import { createClient } from "redis";
import { HOST, LEASE_MS, PORT, check, done, pause, race, stopwatch } from "./checks.js";

const RELEASE = `if redis.call("get",KEYS[1]) == ARGV[1] then
  return redis.call("del",KEYS[1])
else
  return 0
end`;
const EXTEND = `if redis.call("get",KEYS[1]) == ARGV[1] then
  return redis.call("pexpire",KEYS[1],ARGV[2])
else
  return 0
end`;

for (const RESP of [2, 3]) await locks(RESP);
done();

async function locks(RESP) {
  const client = createClient({ RESP, socket: { host: HOST, port: PORT } });
  client.on("error", (error) => check(`connection over RESP${RESP}`, false, error));
  await client.connect();
  await client.flushAll();
  check(`RESP${RESP}: ping`, (await client.ping()) === "PONG");
  const says = (name, truth, detail) => check(`RESP${RESP}: ${name}`, truth, detail);

  const acquire = async (key, token, lease) =>
    (await client.set(key, token, { condition: "NX", expiration: { type: "PX", value: lease } })) === "OK";
  const wait = async (key, token, lease) => {
    while (!(await acquire(key, token, lease))) await pause(5);
  };
  const release = (key, token) => client.eval(RELEASE, { keys: [key], arguments: [token] });

  says("acquire", await acquire("stock", "first", 10_000));
  says("contended acquire is refused", !(await acquire("stock", "second", 10_000)));
  says("release by a non-owner is refused", (await release("stock", "second")) === 0);
  says("the owner still holds it", (await client.get("stock")) === "first");

  const extend = await client.scriptLoad(EXTEND);
  const extension = (token) => client.evalSha(extend, { keys: ["stock"], arguments: [token, "20000"] });
  says("extend", (await extension("first")) === 1);
  const ttl = await client.pTTL("stock");
  says("extend takes the lease anew", ttl > 19_000 && ttl <= 20_000, ttl);
  says("extend by a non-owner is refused", (await extension("second")) === 0);

  let isWaiting = true;
  const waiting = wait("stock", "second", 10_000).then(() => (isWaiting = false));
  await pause(50);
  says("contended acquire waits", isWaiting);
  says("release", (await release("stock", "first")) === 1);
  await waiting;
  says("and is served by the release", (await client.get("stock")) === "second");
  says("a second release is refused", (await release("stock", "first")) === 0);
  await release("stock", "second");

  const elapsed = stopwatch();
  await acquire("lease", "lapsed", LEASE_MS);
  await wait("lease", "heir", 10_000);
  says("expiry hands over, not before the lease ended", elapsed() >= LEASE_MS, elapsed());
  says("the lapsed holder cannot release", (await release("lease", "lapsed")) === 0);
  says("the heir can", (await release("lease", "heir")) === 1);

  const fences = [];
  let losses = 0;
  await race(async (critical) => {
    const token = randomUUID();
    await wait("race", token, 10_000);
    fences.push(await client.incr("fence"));
    await critical();
    losses += 1 - (await release("race", token));
  });
  says("fences only grow", fences.every((fence, index) => fence === index + 1), fences);
  says("every release was the holder's", losses === 0, losses);
  await client.close();
}
