// ioredis in cluster mode: `Cluster` under redlock 5 and redis-semaphore, and its sharded subscribers.
import { createRequire } from "node:module";
import Redis from "ioredis";
import { Mutex, Semaphore } from "redis-semaphore";
import { HOST, LEASE_MS, PORT, PORTS, check, done, handover, pause, race, refusal, stopwatch } from "./checks.js";

const { default: Redlock, ExecutionError, Lock } = createRequire(import.meta.url)("redlock5");

const client = new Redis.Cluster([{ host: HOST, port: PORT }], { shardedSubscribers: true });
check("ping", (await client.ping()) === "PONG");
const nodes = client.nodes("master").map((node) => node.options.port).sort();
check("the nodes are those that share the slots", nodes.join() === [...PORTS].sort().join(), nodes);
const hasty = new Redlock([client], { retryCount: 0 });
const patient = new Redlock([client], { retryCount: 2000, retryDelay: 5, retryJitter: 2 });
const isRefused = (error) => error instanceof ExecutionError;

const first = await hasty.acquire(["stock"], 10_000);
check("acquire", (await client.get("stock")) === first.value);
check("contended acquire is refused", isRefused(await refusal(hasty.acquire(["stock"], 10_000))));
const stranger = new Lock(hasty, ["stock"], "not the holder's", [], Date.now() + 10_000);
check("release by a non-owner is refused", isRefused(await refusal(stranger.release())));
const longer = await first.extend(20_000);
const ttl = await client.pttl("stock");
check("extend takes the lease anew", ttl > 19_000 && ttl <= 20_000, ttl);
const second = await handover(() => patient.acquire(["stock"], 10_000), () => longer.release());
await second.release();
check("release", (await client.exists("stock")) === 0);

const both = await hasty.acquire(["{pair}left", "{pair}right"], 10_000);
check("one lock on two keys of a slot", (await client.exists("{pair}left", "{pair}right")) === 2);
await both.release();
check("none on two keys of two slots", isRefused(await refusal(hasty.acquire(["left", "right"], 10_000))));
const error = await refusal(client.mget("left", "right"));
check("CROSSSLOT", error.message === "CROSSSLOT Keys in request don't hash to the same slot", error);

const elapsed = stopwatch();
const lapsed = await hasty.acquire(["lease"], LEASE_MS);
const heir = await patient.acquire(["lease"], 10_000);
check("expiry hands over, not before the lease ended", elapsed() >= LEASE_MS, elapsed());
check("the lapsed holder cannot release", isRefused(await refusal(lapsed.release())));
await heir.release();

const mutex = new Mutex(client, "mutex", { lockTimeout: LEASE_MS, refreshInterval: LEASE_MS / 4 });
await mutex.acquire();
await pause(2 * LEASE_MS);
check("redis-semaphore: a mutex is kept", mutex.isAcquired && (await client.exists("mutex:mutex")) === 1);
await mutex.release();
const permits = [1, 2, 3].map(() => new Semaphore(client, "permits", 2, { acquireAttemptsLimit: 1 }));
const taken = await Promise.all(permits.map((permit) => permit.tryAcquire()));
check("redis-semaphore: two permits of two", taken.filter(Boolean).length === 2, taken);
await Promise.all(permits.map((permit) => permit.release()));

const heard = new Promise((resolve) => client.on("smessage", (_, message) => resolve(message)));
await client.ssubscribe("shard");
await client.spublish("shard", "freed");
check("a shard channel", (await heard) === "freed");

await race(async (critical) => {
  const lock = await patient.acquire(["race"], 10_000);
  await critical();
  await lock.release();
});
client.disconnect();
done();
