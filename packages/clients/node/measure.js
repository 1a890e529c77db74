#!/usr/bin/env node
// What a lock costs this process: acquire and release through the client, beside SET NX PX and EVALSHA by the library alone.
//
//   measure.js [--pairs 100] [--rounds 201] [--url URL]
//
// Run it in a project that has redlatch-client, redlatch (or a URL), ioredis and redis: that of check.sh. In turns of so many
// pairs, one way after the other, so that the moods of a machine reach all of them alike; one lock at a time. Prints
// microseconds of CPU time of this process for a pair, the median of the turns; and the requests of a wait.

import { createHash, randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const { values } = parseArgs({
  options: { pairs: { type: "string", default: "100" }, rounds: { type: "string", default: "201" }, url: { type: "string" } },
});
const pairs = Number(values.pairs);
const project = createRequire(path.join(process.cwd(), "package.json"));
const load = (name) => import(pathToFileURL(project.resolve(name)).href);
const { Locks } = await load("redlatch-client");
const { Redis } = await load("ioredis");
const { createClient } = await load("redis");

const RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
const DIGEST = createHash("sha1").update(RELEASE).digest("hex");

async function bareIoredis(client) {
  const owner = randomUUID();
  await client.set("lock:bare", owner, "PX", 30_000, "NX");
  if ((await client.evalsha(DIGEST, 1, "lock:bare", owner)) !== 1) throw new Error("not held");
}

async function bareNodeRedis(client) {
  const owner = randomUUID();
  await client.set("lock:bare", owner, { condition: "NX", expiration: { type: "PX", value: 30_000 } });
  if ((await client.evalSha(DIGEST, { keys: ["lock:bare"], arguments: [owner] })) !== 1) throw new Error("not held");
}

async function ours(lock) {
  const held = await lock.acquire();
  if (!(await held.release())) throw new Error("not held");
}

const server = values.url ? null : await (await load("redlatch")).start();
const namespace = server?.namespace();
const url = values.url ?? namespace.url;
const ioredis = new Redis(url);
const nodeRedis = await createClient({ url }).connect();
await ioredis.script("LOAD", RELEASE);
const locks = [new Locks(ioredis), new Locks(nodeRedis)];
const [onIoredis, onNodeRedis] = locks.map((each) => each.lock("lock:ours"));
const ways = {
  ioredis: () => bareIoredis(ioredis),
  "redlatch-client on ioredis": () => ours(onIoredis),
  "node-redis": () => bareNodeRedis(nodeRedis),
  "redlatch-client on node-redis": () => ours(onNodeRedis),
};

const took = Object.fromEntries(Object.keys(ways).map((name) => [name, []]));
for (let round = 0; round < Number(values.rounds); round++) {
  for (const [name, pair] of Object.entries(ways)) {
    const begun = process.cpuUsage();
    for (let n = 0; n < pairs; n++) await pair();
    const { user, system } = process.cpuUsage(begun);
    took[name].push((user + system) / pairs);
  }
}
const median = (all) => all.sort((one, other) => one - other)[Math.floor(all.length / 2)];
for (const [name, all] of Object.entries(took)) {
  const library = name.includes("node-redis") ? "node-redis" : "ioredis";
  const ratio = (median(all) / median(took[library])).toFixed(2);
  console.log(`${name.padEnd(30)} ${median(all).toFixed(0).padStart(5)} us, ${ratio} of ${library}`);
}
for (const each of locks) await each.close();
ioredis.disconnect();
nodeRedis.destroy();
if (namespace) await waits();
await server?.stop();

/** How many requests a wait of a second costs. */
async function waits() {
  const client = new Redis(url);
  const locks = new Locks(client);
  const held = await locks.lock("lock:awaited").acquire();
  const waiting = locks.lock("lock:awaited", { wait: 60_000 }).acquire();
  while (((await locks.lockedBy("lock:awaited")).waiters ?? 0) === 0);
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  await held.release();
  await (await waiting).release();
  const requests = await namespace.history({ command: "LOCK.ACQUIRE", key: "lock:awaited" });
  console.log(`a wait of a second: ${requests.filter((event) => event.kind === "request").length - 1} request`);
  await locks.close();
  client.disconnect();
}
