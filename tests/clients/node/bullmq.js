// BullMQ: a job's lock, taken by hand and by workers, renewed, lost by a worker that stalls; and its queue.
// Without QueueEvents, which reads a stream by XREAD.
import { Queue, UnrecoverableError, Worker } from "bullmq";
import Redis from "ioredis";
import { HOST, LEASE_MS, PORT, check, done, pause, refusal, stopwatch, until } from "./checks.js";

const connection = { host: HOST, port: PORT };
const client = new Redis(connection);
// Renewed at half its time: a worker that is kept waiting for a second by a busy machine still has it.
const LOCK_MS = 2_000;
const LONG_JOB_MS = 2_500;
const opened = [];
/** What is closed at the end; an error of its connection ends the program. */
const open = (one) => {
  one.setMaxListeners(100);
  one.on("error", (error) => check("connection", false, error?.stack));
  opened.push(one);
  return one;
};

// By hand: a worker without a function, whose user says when a job begins and ends.
const queue = open(new Queue("orders", { connection }));
const hands = open(new Worker("orders", null, { connection, lockDuration: 10_000 }));
const { id } = await queue.add("ship", { order: 7 });
const job = await hands.getNextJob("first");
check(
  "acquire",
  job.id === id && job.data.order === 7 && (await client.get(`bull:orders:${id}:lock`)) === "first",
);
check("it has its lease", (await client.pttl(`bull:orders:${id}:lock`)) > 9_000);
check("a held job is nobody else's", (await hands.getNextJob("second", { block: false })) === undefined);
check("extend by the holder", (await job.extendLock("first", 20_000)) === 1);
const ttl = await client.pttl(`bull:orders:${id}:lock`);
check("extend takes the lease anew", ttl > 19_000 && ttl <= 20_000, ttl);
const stranger = await refusal(job.extendLock("second", 60_000).then((code) => Promise.reject(code)));
check("extend by a non-owner is refused", stranger !== 1, stranger);
const stolen = await refusal(job.moveToCompleted("done", "second", false));
check("a non-owner cannot complete it", /lock/i.test(stolen?.message), stolen);
await job.moveToCompleted({ shipped: true }, "first", false);
check(
  "release by completing it",
  (await client.exists(`bull:orders:${id}:lock`)) === 0 && (await job.isCompleted()),
);
check("its result is kept", (await queue.getJob(id)).returnvalue.shipped === true);

// Nobody gets a job while it is held, somebody else when its lease has ended.
const stalls = open(new Queue("stalls", { connection }));
const dead = open(new Worker("stalls", null, { connection, lockDuration: LEASE_MS }));
await stalls.add("once", {});
const elapsed = stopwatch();
const abandoned = await dead.getNextJob("dead");
const taken = [];
const patience = { connection, stalledInterval: 50, maxStalledCount: 5 };
open(new Worker("stalls", async (next, token) => taken.push(token), patience));
await until(() => taken.length === 1);
check("expiry hands over, not before the lease ended", elapsed() >= LEASE_MS, elapsed());
await until(() => abandoned.isCompleted());
const late = await refusal(abandoned.moveToCompleted("late", "dead", false));
check("the lapsed holder cannot complete it", late !== undefined, late);

// Workers that share a queue: no job runs twice, however short the locks are.
const shared = open(new Queue("race", { connection, defaultJobOptions: { attempts: 2, backoff: 10 } }));
const runs = new Map();
let overlaps = 0;
const running = new Set();
const work = async (next) => {
  if (running.has(next.id)) overlaps += 1;
  running.add(next.id);
  runs.set(next.name, (runs.get(next.name) ?? 0) + 1);
  // Longer than the lock: only its renewals keep it.
  await pause(next.data.ms);
  running.delete(next.id);
  if (next.name === "fails once" && next.attemptsMade === 0) throw new Error("once");
  if (next.name === "fails for good") throw new UnrecoverableError("for good");
  return next.data.ms;
};
const brief = { connection, concurrency: 3, lockDuration: LOCK_MS, stalledInterval: 100 };
for (let index = 0; index < 2; index += 1) open(new Worker("race", work, brief));
const jobs = await shared.addBulk([
  ...Array.from({ length: 20 }, (_, index) => ({ name: `short ${index}`, data: { ms: 2 } })),
  { name: "long", data: { ms: LONG_JOB_MS } },
  { name: "fails once", data: { ms: 1 } },
  { name: "first of all", data: { ms: 1 }, opts: { priority: 1 } },
  { name: "later", data: { ms: 1 }, opts: { delay: 100 } },
]);
await until(async () => (await shared.getCompletedCount()) === jobs.length);
const result = (await shared.getJob(jobs[20].id)).returnvalue;
check("every job ends", result === LONG_JOB_MS, result);
check("no job runs while it runs", overlaps === 0, overlaps);
const again = [...runs].filter(([, count]) => count > 1).map(([name]) => name);
check(
  "none twice but the one that failed",
  again.join() === "fails once" && runs.get("fails once") === 2,
  again,
);
const doomed = await shared.add("fails for good", { ms: 1 });
await until(() => doomed.isFailed());
const { failedReason, attemptsMade } = await shared.getJob(doomed.id);
check("a failure is told, and final", failedReason === "for good" && attemptsMade === 1, failedReason);
const counts = await shared.getJobCounts("completed", "failed", "active", "wait", "delayed");
check(
  "counts by state",
  JSON.stringify(counts) === '{"completed":24,"failed":1,"active":0,"wait":0,"delayed":0}',
  counts,
);
await shared.upsertJobScheduler("tick", { every: 50 }, { name: "tick", data: { ms: 1 } });
await until(() => runs.get("tick") >= 3);
check("a schedule repeats", await shared.removeJobScheduler("tick"));
for (const one of opened.reverse()) await one.close();
await client.quit();
done();
