// redlock-universal on ioredis and on node-redis: locks on one server and on three, batches, extension.
import Redis from "ioredis";
import { createClient } from "redis";
import { createLock, createRedlock, LockAcquisitionError, LockManager } from "redlock-universal";
import { IoredisAdapter, NodeRedisAdapter } from "redlock-universal";
import { HOST, LEASE_MS, PORTS, check, done, handover, pause, race, refusal, stopwatch } from "./checks.js";

const clients = PORTS.map((port) => new Redis({ host: HOST, port }));
const other = createClient({ socket: { host: HOST, port: PORTS[0] } });
await other.connect();
const adapters = clients.map((client) => new IoredisAdapter(client));
const [client] = clients;
const isRefused = (error) => error instanceof LockAcquisitionError;
const patience = { ttl: 10_000, retryAttempts: 2_000, retryDelay: 5, circuitBreaker: false };
const haste = { ...patience, retryAttempts: 0 };

const kinds = {
  "on ioredis": (key, options) => createLock({ adapter: adapters[0], key, ...options }),
  lean: (key, options) => createLock({ adapter: adapters[0], key, ...options, performance: "lean" }),
  "on node-redis": (key, options) => createLock({ adapter: new NodeRedisAdapter(other), key, ...options }),
  "on three": (key, options) => createRedlock({ adapters, key, ...options }),
};

for (const [kind, lock] of Object.entries(kinds)) {
  const says = (name, truth, detail) => check(`${kind}: ${name}`, truth, detail);
  const [first, second] = [lock("stock", haste), lock("stock", patience)];
  const held = await first.acquire();
  says("acquire", (await client.get("stock")) === held.value && (await first.isLocked("stock")));
  says("contended acquire is refused", isRefused(await refusal(lock("stock", haste).acquire())));
  const forged = { ...held, value: "0".repeat(held.value.length) };
  says("release by a non-owner is refused", !(await succeeds(first.release(forged))));
  says("extend by a non-owner is refused", !(await succeeds(first.extend(forged, 60_000))));
  says("the owner still holds it", (await client.get("stock")) === held.value);
  says("extend", await first.extend(held, 20_000));
  const ttl = await client.pttl("stock");
  says("takes the lease anew", ttl > 19_000 && ttl <= 20_000, ttl);
  const heir = await handover(
    () => second.acquire(),
    () => first.release(held),
    `${kind}: `,
  );
  says("and is served by the release", (await client.get("stock")) === heir.value);
  says("release", (await second.release(heir)) && (await client.exists("stock")) === 0);

  const elapsed = stopwatch();
  const brief = lock("lease", { ...haste, ttl: LEASE_MS });
  const lapsed = await brief.acquire();
  const next = await lock("lease", patience).acquire();
  says("expiry hands over, not before the lease ended", elapsed() >= LEASE_MS, elapsed());
  says("the lapsed holder cannot release", !(await succeeds(brief.release(lapsed))));
  await lock("lease", patience).release(next);

  const kept = await lock("kept", { ...haste, ttl: 1_000 }).using(async (signal) => {
    await pause(1_500);
    return !signal.aborted && (await client.exists("kept")) === 1;
  });
  says("automatic extension keeps a short lease", kept && (await client.exists("kept")) === 0);

  await race(async (critical) => {
    const own = lock("race", patience);
    const handle = await own.acquire();
    await critical();
    await own.release(handle);
  });
}

/** Whether a promise is fulfilled with true: some refuse with false, others with an error. */
function succeeds(promise) {
  return promise.then(
    (answer) => answer === true,
    () => false,
  );
}

const seen = await adapters[0].inspect("nothing");
await adapters[0].setNX("something", "a value", 10_000);
const found = await adapters[0].inspect("something");
check("inspection", seen === null && found.value === "a value" && found.ttl > 9_000, found);
const early = await adapters[0].atomicExtend("something", "a value", 60_000, 90_000);
const timely = await adapters[0].atomicExtend("something", "a value", 1_000, 90_000);
const alien = await adapters[0].atomicExtend("something", "another's", 1_000, 90_000);
const codes = [early, timely, alien].map(({ resultCode }) => resultCode);
check("extension only if enough is left", codes.join() === "0,1,-1" && early.actualTTL > 9_000, codes);

const manager = new LockManager({ nodes: adapters, defaultTTL: 10_000, defaultRetryAttempts: 0 });
const batch = await manager.acquireBatch(["c", "a", "b"]);
check("a batch is acquired as a whole", batch.map(({ key }) => key).join() === "a,b,c");
check("a batch that overlaps is refused", isRefused(await refusal(manager.acquireBatch(["b", "d"]))));
check("and takes nothing", (await client.exists("d")) === 0);
const released = await manager.releaseBatch(batch);
check("a batch is released", released.every(Boolean) && (await client.exists("a", "b", "c")) === 0);
const used = await manager.usingBatch(["a", "b"], () => client.exists("a", "b"));
check("a batch is used", used === 2 && (await client.exists("a", "b")) === 0);
check("every server is healthy", (await manager.checkHealth()).healthy);
for (const each of clients) await each.quit();
await other.close();
done();
