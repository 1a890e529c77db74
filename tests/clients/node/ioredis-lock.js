// @microfleet/ioredis-lock: SET PX NX, and two commands that it defines for ioredis.
import Redis from "ioredis5";
import {
  createLock,
  getAcquiredLocks,
  LockAcquisitionError,
  LockExtendError,
  LockReleaseError,
} from "@microfleet/ioredis-lock";
import { HOST, LEASE_MS, PORT, check, done, handover, race, refusal, stopwatch } from "./checks.js";

const client = new Redis({ host: HOST, port: PORT });
check("ping", (await client.ping()) === "PONG");
const lock = (options) => createLock(client, { timeout: 10_000, retries: 2_000, delay: 5, ...options });
const hasty = () => lock({ retries: 0 });

const first = lock();
await first.acquire("stock");
check("acquire", (await client.get("stock")) === first._id && (await client.pttl("stock")) > 9_000);
check(
  "contended acquire is refused",
  (await refusal(hasty().acquire("stock"))) instanceof LockAcquisitionError,
);
const stranger = hasty();
check("who holds nothing cannot release", (await refusal(stranger.release())) instanceof LockReleaseError);
check("nor extend", (await refusal(stranger.extend(60_000))) instanceof LockExtendError);
Object.assign(stranger, { _locked: true, _key: "stock" });
check("release by a non-owner is refused", (await refusal(stranger.release())) instanceof LockReleaseError);
Object.assign(stranger, { _locked: true, _key: "stock" });
check(
  "extend by a non-owner is refused",
  (await refusal(stranger.extend(60_000))) instanceof LockExtendError,
);
check("the owner still holds it", (await client.get("stock")) === first._id);
await first.extend(20_000);
const ttl = await client.pttl("stock");
check("extend takes the lease anew", ttl > 19_000 && ttl <= 20_000, ttl);

const second = lock();
await handover(
  () => second.acquire("stock"),
  () => first.release(),
);
check("and is served by the release", (await client.get("stock")) === second._id);
check("a second release is refused", (await refusal(first.release())) instanceof LockReleaseError);
const held = getAcquiredLocks();
check("the holders are known", [...held].length === 1 && [...held][0] === second);
await second.release();
check("release", (await client.exists("stock")) === 0);

const elapsed = stopwatch();
const lapsed = await lock({ timeout: LEASE_MS }).acquire("lease");
const heir = await lock().acquire("lease");
check("expiry hands over, not before the lease ended", elapsed() >= LEASE_MS, elapsed());
check("the lapsed holder cannot extend", (await refusal(lapsed.extend())) instanceof LockExtendError);
check("the heir still holds it", (await client.get("lease")) === heir._id);
await heir.release();

await race(async (critical) => {
  const own = await lock().acquire("race");
  await critical();
  await own.release();
});
await client.quit();
done();
