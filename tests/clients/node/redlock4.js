// redlock 4 on ioredis, whose default protocol is RESP3.
import Redis from "ioredis";
import Redlock from "redlock4";
import { HOST, LEASE_MS, PORT, check, done, pause, race, refusal, stopwatch } from "./checks.js";

const client = new Redis({ host: HOST, port: PORT });
check("ping", (await client.ping()) === "PONG");
const hasty = new Redlock([client], { retryCount: 0 });
const patient = new Redlock([client], { retryCount: 2000, retryDelay: 5, retryJitter: 2 });
const isLockError = (error) => error instanceof Redlock.LockError;

const first = await hasty.lock("stock", 10_000);
check("acquire", (await client.get("stock")) === first.value);
check("contended acquire is refused", isLockError(await refusal(hasty.lock("stock", 10_000))));

const stranger = new Redlock.Lock(hasty, "stock", "not the holder's", Date.now() + 10_000, 0);
check("release by a non-owner is refused", isLockError(await refusal(stranger.unlock())));
stranger.expiration = Date.now() + 10_000;
check("extend by a non-owner is refused", isLockError(await refusal(stranger.extend(60_000))));
check("the owner still holds it", (await client.get("stock")) === first.value);

await first.extend(20_000);
const ttl = await client.pttl("stock");
check("extend takes the lease anew", ttl > 19_000 && ttl <= 20_000, ttl);

const waiting = patient.lock("stock", 10_000);
await pause(50);
await first.unlock();
const second = await waiting;
check("contended acquire waits for the release", (await client.get("stock")) === second.value);
check("a second release is refused", isLockError(await refusal(first.unlock())));
await second.unlock();
check("release", (await client.exists("stock")) === 0);

const both = await hasty.lock(["left", "right"], 10_000);
check("one lock on two keys", (await client.exists("left", "right")) === 2);
check("either is held", isLockError(await refusal(hasty.lock(["right", "third"], 10_000))));
check("a refusal takes nothing", (await client.exists("third")) === 0);
await both.unlock();
check("both are released", (await client.exists("left", "right")) === 0);

const elapsed = stopwatch();
const lapsed = await hasty.lock("lease", LEASE_MS);
const heir = await patient.lock("lease", 10_000);
check("expiry hands over", (await client.get("lease")) === heir.value);
check("not before the lease ended", elapsed() >= LEASE_MS, elapsed());
check("the lapsed holder cannot release", isLockError(await refusal(lapsed.unlock())));
check("the heir still holds it", (await client.get("lease")) === heir.value);
await heir.unlock();

await race(async (critical) => {
  const lock = await patient.lock("race", 10_000);
  await critical();
  await lock.unlock();
});
await client.quit();
done();
