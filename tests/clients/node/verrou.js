// @verrou/core, the locks of AdonisJS, on ioredis 5: with and without a lease, run, restored elsewhere.
import { E_LOCK_NOT_OWNED, Verrou } from "@verrou/core";
import { redisStore } from "@verrou/core/drivers/redis";
import Redis from "ioredis5";
import { HOST, LEASE_MS, PORT, check, done, handover, pause, race, refusal, stopwatch } from "./checks.js";

const client = new Redis({ host: HOST, port: PORT });
const verrou = new Verrou({
  default: "redis",
  stores: { redis: { driver: redisStore({ connection: client }) } },
});
const lock = (name, lease = 10_000) => verrou.createLock(name, lease);
const patience = { retry: { attempts: 2_000, delay: 5 } };
const isOthers = (error) => error instanceof E_LOCK_NOT_OWNED;

const first = lock("stock");
check("acquire", (await first.acquire()) && (await client.get("stock")) === first.getOwner());
check("it has its lease", (await client.pttl("stock")) > 9_000 && (await first.isLocked()));
const second = lock("stock");
check("contended acquire is refused", !(await second.acquireImmediately()));
check("a wait that is too short is refused", !(await second.acquire({ retry: { timeout: 50, delay: 5 } })));
check("release by a non-owner is refused", isOthers(await refusal(second.release())));
check("extend by a non-owner is refused", isOthers(await refusal(second.extend(60_000))));
await first.extend(20_000);
const ttl = await client.pttl("stock");
check("extend takes the lease anew", ttl > 19_000 && ttl <= 20_000, ttl);

check(
  "and is served by the release",
  await handover(
    () => second.acquire(patience),
    () => first.release(),
  ),
);
check("a second release is refused", isOthers(await refusal(first.release())));
await verrou.restoreLock(second.serialize()).release();
check("release by who was handed the lock", (await client.exists("stock")) === 0);

const forever = lock("stock", null);
check("a lock without a lease", (await forever.acquire()) && (await client.pttl("stock")) === -1);
await lock("stock").forceRelease();
check("is released by force", !(await forever.isLocked()));

const elapsed = stopwatch();
const lapsed = lock("lease", LEASE_MS);
const heir = lock("lease");
await lapsed.acquire();
check("expiry hands over", await heir.acquire(patience));
check("not before the lease ended", elapsed() >= LEASE_MS && lapsed.isExpired(), elapsed());
check("the lapsed holder cannot release", isOthers(await refusal(lapsed.release())));
await heir.release();

const [ran, value] = await lock("run").run(async () => client.exists("run"));
check("run holds the lock and releases it", ran && value === 1 && (await client.exists("run")) === 0);
const rival = lock("run");
await rival.acquire();
const [denied] = await lock("run").runImmediately(() => pause(1));
check("runImmediately does not wait", denied === false);

await race(async (critical) => {
  const own = lock("race");
  await own.acquire(patience);
  await critical();
  await own.release();
});
await client.quit();
done();
