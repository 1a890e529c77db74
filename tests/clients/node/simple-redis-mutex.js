// simple-redis-mutex on node-redis: waiters are told by PUBLISH, every lock has a fencing token.
import { createClient } from "redis";
import { lock, tryLock } from "simple-redis-mutex";
import { HOST, LEASE_MS, PORT, check, done, handover, race, refusal, stopwatch } from "./checks.js";

const client = createClient({ socket: { host: HOST, port: PORT } });
client.on("error", (error) => check("connection", false, error));
await client.connect();
const KEY = "@simple-redis-mutex:lock-stock";

const [isHeld, release] = await tryLock(client, "stock", { timeout: 10_000 });
const token = await client.get(KEY);
check("acquire", isHeld && token !== null);
const [isRefused, nothing] = await tryLock(client, "stock");
check("contended acquire is refused", !isRefused && nothing.fencingToken === -1);
await nothing();
check("release by a non-owner changes nothing", (await client.get(KEY)) === token);
const hasty = await refusal(lock(client, "stock", { failAfter: 50 }));
check("a wait that is too short is refused", /could not be acquired after 50/.test(hasty?.message), hasty);
await client.pExpire(KEY, 1_000);
await release.refreshTimeout();
check("refresh takes the lease anew", (await client.pTTL(KEY)) > 9_000);

// It would look again by itself after ten seconds only.
const elapsed = stopwatch();
const second = await handover(() => lock(client, "stock"), release);
check("and is told of the release", elapsed() < 5_000 && (await client.get(KEY)) !== token, elapsed());
await release();
check("a second release changes nothing", (await client.exists(KEY)) === 1);
await client.scriptFlush();
await second();
check("release, though the script was flushed", (await client.exists(KEY)) === 0);

const since = stopwatch();
await lock(client, "lease", { timeout: LEASE_MS });
const heir = await lock(client, "lease", { pollingInterval: 10 });
check("expiry hands over, not before the lease ended", since() >= LEASE_MS, since());
await heir();

const fences = [];
await race(async (critical) => {
  const own = await lock(client, "race");
  fences.push(own.fencingToken);
  await critical();
  await own();
});
check(
  "fences only grow",
  fences.every((fence, index) => index === 0 || fence > fences[index - 1]),
  fences,
);
await client.close();
done();
