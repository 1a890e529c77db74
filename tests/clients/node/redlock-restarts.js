// redlock on ioredis through a kill of its server, and through the quarantine after one. The server is started again.
// The argument is the name of the package: what is used here has the same names in versions 4 and 5.
import { createRequire } from "node:module";
import Redis from "ioredis";
import { HOST, PORTS, check, done, pause, refusal, until } from "./checks.js";

const loaded = createRequire(import.meta.url)(process.argv[2]);
const Redlock = loaded.default ?? loaded;
const Refusal = loaded.ExecutionError ?? loaded.LockError;
const PIDS = process.env.REDLATCH_PIDS.split(",").map(Number);
const [KEEPS, FORGETS] = [0, 1];
const clients = [];

/** Clients of one of the servers: the owner's, another's, who does not wait and who does, and a watcher's. */
function open(number) {
  const connect = () => {
    const client = new Redis({ host: HOST, port: PORTS[number] });
    // Printed unless somebody listens. The client connects again by itself.
    client.on("error", () => {});
    clients.push(client);
    return client;
  };
  const hasty = () => new Redlock([connect()], { retryCount: 0 });
  const patient = new Redlock([connect()], { retryCount: 2000, retryDelay: 20, retryJitter: 5 });
  return { owner: hasty(), other: hasty(), patient, watcher: connect() };
}

async function info(watcher, field) {
  const line = (await watcher.info()).split("\r\n").find((line) => line.startsWith(`${field}:`));
  return Number(line.split(":")[1]);
}

/** Kills the server; resolves when another process answers in its place. */
async function restart(watcher, number) {
  process.kill(PIDS[number], "SIGKILL");
  await until(async () => (await info(watcher, "process_id")) !== PIDS[number]);
}

const isRefused = async (promise) => (await refusal(promise)) instanceof Refusal;
const isActive = async (watcher) => (await info(watcher, "quarantine_active")) === 1;
const refuses = (redlock, name) => isRefused(redlock.acquire([name], 60_000));

/** Begins to wait for a lock. */
function waits(redlock, name) {
  const waiter = { isServed: false };
  waiter.lock = redlock.acquire([name], 60_000).finally(() => (waiter.isServed = true));
  return waiter;
}

async function throughARestart() {
  const { owner, other, patient, watcher } = open(KEEPS);
  const mine = await owner.acquire(["stock"], 60_000);
  check("acquire", (await watcher.get("stock")) === mine.value && (await refuses(other, "stock")));
  const waiter = waits(patient, "stock");
  const left = await watcher.pttl("stock");
  await restart(watcher, KEEPS);
  check("after a kill it is still held", (await refuses(other, "stock")) && (await watcher.get("stock")) === mine.value);
  const after = await watcher.pttl("stock");
  check("its lease has gone on", after > 0 && after <= left, `${after} after ${left}`);
  const longer = await mine.extend(120_000);
  check("its owner extends it", (await watcher.pttl("stock")) > 60_000);
  check("who waited before the kill still waits", !waiter.isServed);
  await owner.release(longer);
  const heir = await waiter.lock;
  check("and is served by the release", (await watcher.get("stock")) === heir.value);
  await patient.release(heir);
  check("release", (await watcher.exists("stock")) === 0);
}

async function throughAQuarantine() {
  const { owner, other, patient, watcher } = open(FORGETS);
  const mine = await owner.acquire(["stock"], 4_000);
  check("acquire what will be forgotten", (await watcher.get("stock")) === mine.value);
  const waiter = waits(patient, "stock");
  await restart(watcher, FORGETS);
  const refusals = [await refuses(other, "stock"), await refuses(other, "fresh"), await isRefused(mine.extend(60_000))];
  const left = await info(watcher, "quarantine_left_ms");
  check("in quarantine all are refused", refusals.every(Boolean) && left > 0, `${refusals}, ${left} ms left`);
  const late = waits(patient, "fresh");
  let isEarly = false;
  while (!waiter.isServed || !late.isServed) {
    // GET tells of no key that does not exist. The quarantine is asked for after it: what is there then was granted in it.
    const there = await watcher.mget("stock", "fresh");
    isEarly ||= there.some(Boolean) && (await isActive(watcher));
    await pause(10);
  }
  const [heir, fresh] = [await waiter.lock, await late.lock];
  check("who waits is served by itself", (await watcher.get("stock")) === heir.value);
  check("but not in the quarantine", !isEarly && !(await isActive(watcher)));
  const longer = await heir.extend(120_000);
  check("then all is as ever", (await refuses(other, "stock")) && (await watcher.pttl("stock")) > 60_000);
  await patient.release(longer);
  await patient.release(fresh);
  check("release", (await watcher.exists("stock", "fresh")) === 0);
}

await throughARestart();
await throughAQuarantine();
await Promise.all(clients.map((client) => client.quit()));
done();
