// node-redis-warlock on node-redis 3: callbacks, RESP2, scripts whose KEYS are not all keys.
import { promisify } from "node:util";
import Warlock from "node-redis-warlock";
import redis from "redis3";
import { HOST, LEASE_MS, PORT, check, done, handover, race, refusal, stopwatch } from "./checks.js";

const client = redis.createClient({ host: HOST, port: PORT });
const asks = (command) => promisify(client[command]).bind(client);
const [get, pttl, exists] = ["get", "pttl", "exists"].map(asks);
const warlock = Warlock(client);
const optimistic = promisify(warlock.optimistic);
const unlock = promisify(warlock.unlock);

/** What its callback is given: how to release, or false; and the token. */
const acquire = (key, lease) =>
  new Promise((resolve, reject) => {
    warlock.lock(key, lease, (error, release, token) =>
      error ? reject(error) : resolve({ release, token }),
    );
  });

const first = await acquire("stock", 10_000);
check("acquire", (await get("stock:lock")) === first.token && (await pttl("stock:lock")) > 9_000);
check("contended acquire is refused", (await acquire("stock", 10_000)).release === false);
const hasty = await refusal(optimistic("stock", 10_000, 3, 5));
check("a wait that is too short is refused", hasty?.maxAttempts === 3, hasty);
check("release by a non-owner is refused", (await unlock("stock", "not the holder's")) === 0);
check("extend by a non-owner is refused", (await warlock.touch("stock", "not the holder's", 60_000)) === 0);
check("extend takes the lease anew", (await warlock.touch("stock", first.token, 20_000)) === "OK");
const ttl = await pttl("stock:lock");
check("in milliseconds", ttl > 19_000 && ttl <= 20_000, ttl);

const patient = (key, lease) => optimistic(key, lease, 2_000, 5);
const release = await handover(
  () => patient("stock", 10_000),
  () => promisify(first.release)(),
);
check("and is served by the release", (await unlock("stock", first.token)) === 0);
check("release", (await promisify(release)()) === 1 && (await exists("stock:lock")) === 0);

const elapsed = stopwatch();
const lapsed = await acquire("lease", LEASE_MS);
const heir = await patient("lease", 10_000);
check("expiry hands over, not before the lease ended", elapsed() >= LEASE_MS, elapsed());
check("the lapsed holder cannot release", (await promisify(lapsed.release)()) === 0);
check("nor extend", (await warlock.touch("lease", lapsed.token, 60_000)) === 0);
await promisify(heir)();

await race(async (critical) => {
  const mine = await patient("race", 10_000);
  await critical();
  await promisify(mine)();
});
client.quit();
done();
