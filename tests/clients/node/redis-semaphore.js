// redis-semaphore's Mutex on ioredis: limits of time and attempts, automatic refresh, a lost lock.
import Redis from "ioredis";
import semaphore from "redis-semaphore";
import { HOST, LEASE_MS, PORT, check, done, pause, race, refusal, stopwatch } from "./checks.js";

const { Mutex, TimeoutError } = semaphore;
const client = new Redis({ host: HOST, port: PORT });
check("ping", (await client.ping()) === "PONG");
const mutex = (key, options) => new Mutex(client, key, { refreshInterval: 0, retryInterval: 5, ...options });

const first = mutex("stock");
const second = mutex("stock", { acquireTimeout: 5_000 });
await first.acquire();
check("acquire", first.isAcquired && (await client.get("mutex:stock")) === first.identifier);
check("contended acquire is refused", !(await mutex("stock", { acquireAttemptsLimit: 1 }).tryAcquire()));
const hasty = mutex("stock", { acquireTimeout: 50 });
check("a wait that is too short is refused", (await refusal(hasty.acquire())) instanceof TimeoutError);
await hasty.release();
check("release by a non-owner changes nothing", (await client.get("mutex:stock")) === first.identifier);

const waiting = second.acquire();
await pause(50);
check("contended acquire waits", !second.isAcquired);
await first.release();
await waiting;
check("and is served by the release", (await client.get("mutex:stock")) === second.identifier);
await second.release();
check("release", (await client.exists("mutex:stock")) === 0);

const elapsed = stopwatch();
const lapsed = mutex("lease", { lockTimeout: LEASE_MS });
const heir = mutex("lease");
await lapsed.acquire();
await heir.acquire();
check("expiry hands over", (await client.get("mutex:lease")) === heir.identifier);
check("not before the lease ended", elapsed() >= LEASE_MS, elapsed());
await lapsed.release();
check("the lapsed holder cannot release", (await client.get("mutex:lease")) === heir.identifier);
await heir.release();

// The lease is shorter than the work: only the refreshes keep it.
const kept = mutex("kept", { lockTimeout: LEASE_MS, refreshInterval: LEASE_MS / 4 });
await kept.acquire();
await pause(2 * LEASE_MS);
check("refresh keeps a short lease", (await client.get("mutex:kept")) === kept.identifier && kept.isAcquired);
await kept.release();
check("and it is released after the work", (await client.exists("mutex:kept")) === 0);

const lost = await new Promise((resolve) => {
  const robbed = mutex("robbed", { lockTimeout: 10_000, refreshInterval: 20, onLockLost: resolve });
  robbed.acquire().then(() => client.set("mutex:robbed", "another's"));
});
check("refresh notices a lost lock", lost instanceof semaphore.LostLockError, lost);

await race(async (critical) => {
  const lock = mutex("race");
  await lock.acquire();
  await critical();
  await lock.release();
});
await client.quit();
done();
