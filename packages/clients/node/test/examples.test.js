// The examples of the documentation, each run; jobs of real schedulers.

import cron from "node-cron";
import { expect, onTestFinished, vi } from "vitest";
import { test } from "redlatch/vitest/test";
import { Redis } from "ioredis";
import { Locks, once } from "redlatch-client";
import { leadForever } from "./examples/leader.js";
import { schedule } from "./examples/report.js";
import { restock } from "./examples/stock.js";
import { train } from "./examples/train.js";
import { until } from "./servers.js";

function locksOf(redlatch) {
  const client = new Redis(redlatch.url);
  const locks = new Locks(client);
  onTestFinished(async () => {
    await locks.close();
    client.disconnect();
  });
  return locks;
}

function printed() {
  const lines = [];
  const spy = vi.spyOn(console, "log").mockImplementation((text) => void lines.push(text));
  onTestFinished(() => spy.mockRestore());
  return () => lines.join("\n");
}

test("stock", async ({ redlatch }) => {
  const locks = locksOf(redlatch);
  const said = printed();
  const written = [];
  const write = async (...what) => void written.push(what);
  expect(await restock(locks, ["a", "b"], write)).toBe(true);
  expect(written.map(([article]) => article)).toEqual(["a", "b"]);
  expect(written[0][1]).toBeGreaterThan(0);
  await redlatch.clock.freeze();
  const held = await locks.lock("lock:stock", { meta: { reason: "stocktaking" } }).acquire();
  const refused = restock(locks, ["a"], write);
  await until(() => locks.lockedBy("lock:stock"), (holder) => holder.waiters === 1);
  await redlatch.clock.advance(5_001);
  expect(await refused).toBe(false);
  expect(said()).toContain("stocktaking");
  expect(said()).toContain(`redlatch break lock:stock --token ${held.token}`);
  expect(written.length).toBe(2);
});

test("leader", async ({ redlatch }) => {
  const locks = locksOf(redlatch);
  const said = printed();
  const tokens = [];
  const stop = new AbortController();
  const work = (token, signal) => {
    tokens.push(token);
    return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  };
  const leading = leadForever(locks, work, stop.signal);
  await until(() => redlatch.call("PUBSUB", "NUMPAT"), (count) => count === 1);
  await until(() => tokens.length, (count) => count === 1);
  expect(await redlatch.call("LOCK.BREAK", "lock:leader", "TOKEN", tokens[0], "REASON", "drained")).toBe(1);
  await until(() => tokens.length, (count) => count === 2);
  expect(tokens[1]).toBeGreaterThan(tokens[0]);
  expect(said()).toContain("lock:leader is lost: it was broken by an operator: drained");
  stop.abort(new Error("stopped"));
  await leading;
  expect(await locks.lockedBy("lock:leader")).toBe(null);
});

test("train", async ({ redlatch }) => {
  const locks = locksOf(redlatch);
  const begun = [];
  const work = (gpu, signal) => new Promise((end) => begun.push({ gpu, signal, end }));
  const jobs = ["acme", "acme", "acme"].map((tenant) => train(locks, tenant, work));
  await until(() => locks.lockedBy("tenant:acme"), (holder) => holder?.waiters === 1);
  await until(() => begun.length, (count) => count === 2);
  expect(begun.map(({ gpu }) => gpu).sort()).toEqual(["gpu:0", "gpu:1"]);
  expect(begun.some(({ signal }) => signal.aborted)).toBe(false);
  begun[0].end();
  await until(() => begun.length, (count) => count === 3);
  expect(begun[2].gpu).toBe(begun[0].gpu);
  for (const { end } of begun) end();
  await Promise.all(jobs);
  for (const key of ["gpu:0", "gpu:1", "tenant:acme", "total"]) expect(await locks.lockedBy(key)).toBe(null);
});

test("report", async ({ redlatch }) => {
  const locks = locksOf(redlatch);
  let runs = 0;
  const tasks = [1, 2, 3].map(() => schedule(cron, locks, async () => (runs += 1)));
  onTestFinished(() => Promise.all(tasks.map((task) => task.destroy())));
  const results = await Promise.all(tasks.map((task) => task.execute()));
  expect(runs).toBe(1);
  expect(results.filter((result) => result === 1).length).toBe(1);
  expect((await locks.lockedBy("lock:report")).left).toBeGreaterThan(0);
});

test("a job that fails is told, and ends the lock", async ({ redlatch }) => {
  const locks = locksOf(redlatch);
  const failing = once(locks, "lock:report", {}, async (text) => {
    throw new Error(text);
  });
  for (let time = 0; time < 2; time++) await expect(failing("why")).rejects.toThrow("why");
  expect(await locks.lockedBy("lock:report")).toBe(null);
});

test("a job has its arguments and its result", async ({ redlatch }) => {
  const job = once(locksOf(redlatch), "lock:report", { atLeast: 50_000 }, (one, two) => one + two);
  expect(await job(1, 2)).toBe(3);
  expect(await job(1, 2)).toBe(undefined);
});
