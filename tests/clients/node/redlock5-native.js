// redlock 5 on ioredis and native holders of the same key.
import { createRequire } from "node:module";
import Redis from "ioredis";
import { HOST, PORT, check, done, refusal, until } from "./checks.js";

const { default: Redlock, ExecutionError } = createRequire(import.meta.url)("redlock5");

const client = new Redis({ host: HOST, port: PORT, protocol: 2 });
const native = client.duplicate();
const waiter = client.duplicate();
const hasty = new Redlock([client], { retryCount: 0 });
const patient = new Redlock([client], { retryCount: 2000, retryDelay: 5, retryJitter: 2 });
const isRefused = (error) => error instanceof ExecutionError;

/** A map, which RESP2 sends as names and values in turn. */
function map(flat) {
  return Object.fromEntries(Array.from({ length: flat.length / 2 }, (_, at) => [flat[2 * at], flat[2 * at + 1]]));
}

/** Whether somebody waits for the lock in that way: queued, or polling. */
async function isWaited(how) {
  return (await native.call("LOCK.WAITERS", "stock")).some((waiter) => map(waiter).how === how);
}

const first = map(await native.call("LOCK.ACQUIRE", "stock", "first", "LEASE", 10_000)).token;
check("what a native client holds is refused", isRefused(await refusal(hasty.acquire(["stock"], 10_000))));

const waiting = patient.acquire(["stock"], 10_000);
await until(() => isWaited("polling"));
check("a release by a native client", (await native.call("LOCK.RELEASE", "stock", "first")) === 1);
const lock = await waiting;
check("lets the next one have it", (await client.get("stock")) === lock.value);

const second = await native.call("LOCK.TOKEN", "stock", lock.value);
check("its token is higher", second > first, `${first}, ${second}`);
const holder = map(map(await native.call("LOCK.WHO", "stock")).holders[0]);
const library = map(holder.client)["lib-name"];
check("LOCK.WHO names it", holder.owner === lock.value && library === "ioredis", library);
check("a native client is refused", (await native.call("LOCK.ACQUIRE", "stock", "heir")) === null);

const served = waiter.call("LOCK.ACQUIRE", "stock", "heir", "LEASE", 10_000, "WAIT", 10_000);
await until(() => isWaited("queued"));
await lock.release();
// One command later: nobody can have come between.
check("a native waiter has it as soon as it is released", (await client.get("stock")) === "heir");
const third = map(await served).token;
check("with a higher token", third > second, `${second}, ${third}`);
check("and it is refused again", isRefused(await refusal(hasty.acquire(["stock"], 10_000))));
await native.call("LOCK.RELEASE", "stock", "heir");
const last = await hasty.acquire(["stock"], 10_000);
check("its lock is released by its value", (await native.call("LOCK.RELEASE", "stock", last.value)) === 1);
check("which it learns", isRefused(await refusal(last.release())));
for (const connection of [client, native, waiter]) connection.disconnect();
done();
