// redlock 5 on ioredis in its RESP2 form: acquire, extend, release, and `using` with its automatic extension.
import { createRequire } from "node:module";
import Redis from "ioredis";
import { HOST, LEASE_MS, PORT, check, done, pause, race, refusal, stopwatch } from "./checks.js";

// Its import map leads Node to a file that is not marked as a module; the CommonJS build does load.
const { default: Redlock, ExecutionError, Lock } = createRequire(import.meta.url)("redlock5");

const client = new Redis({ host: HOST, port: PORT, protocol: 2 });
check("ping", (await client.ping()) === "PONG");
const hasty = new Redlock([client], { retryCount: 0 });
const patient = new Redlock([client], { retryCount: 2000, retryDelay: 5, retryJitter: 2 });
const isRefused = (error) => error instanceof ExecutionError;

const first = await hasty.acquire(["stock"], 10_000);
check("acquire", (await client.get("stock")) === first.value);
check("contended acquire is refused", isRefused(await refusal(hasty.acquire(["stock"], 10_000))));

const stranger = () => new Lock(hasty, ["stock"], "not the holder's", [], Date.now() + 10_000);
check("release by a non-owner is refused", isRefused(await refusal(stranger().release())));
check("extend by a non-owner is refused", isRefused(await refusal(stranger().extend(60_000))));
check("the owner still holds it", (await client.get("stock")) === first.value);

const longer = await first.extend(20_000);
const ttl = await client.pttl("stock");
check("extend takes the lease anew", ttl > 19_000 && ttl <= 20_000, ttl);

const waiting = patient.acquire(["stock"], 10_000);
await pause(50);
await longer.release();
const second = await waiting;
check("contended acquire waits for the release", (await client.get("stock")) === second.value);
await second.release();
check("release", (await client.exists("stock")) === 0);

const both = await hasty.acquire(["left", "right"], 10_000);
check("one lock on two keys", (await client.exists("left", "right")) === 2);
check("either is held", isRefused(await refusal(hasty.acquire(["right", "third"], 10_000))));
check("a refusal takes nothing", (await client.exists("third")) === 0);
await both.release();
check("both are released", (await client.exists("left", "right")) === 0);

const elapsed = stopwatch();
const lapsed = await hasty.acquire(["lease"], LEASE_MS);
const heir = await patient.acquire(["lease"], 10_000);
check("expiry hands over", (await client.get("lease")) === heir.value);
check("not before the lease ended", elapsed() >= LEASE_MS, elapsed());
check("the lapsed holder cannot release", isRefused(await refusal(lapsed.release())));
check("the heir still holds it", (await client.get("lease")) === heir.value);
await heir.release();

// The lease is shorter than the work: only the extensions keep it.
const held = await hasty.using(["kept"], LEASE_MS, { automaticExtensionThreshold: 80 }, async (signal) => {
  await pause(2 * LEASE_MS);
  return !signal.aborted && (await client.exists("kept")) === 1;
});
check("automatic extension keeps a short lease", held);
check("and it is released after the work", (await client.exists("kept")) === 0);

await race(async (critical) => {
  const lock = await patient.acquire(["race"], 10_000);
  await critical();
  await lock.release();
});
await client.quit();
done();
