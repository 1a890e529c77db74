// What happened, with ioredis and node-redis.
import { Redis } from "ioredis";
import { createClient } from "redis";
import { expect, onTestFinished } from "vitest";
import { test } from "redlatch/vitest/test";

test("requests are recorded, counted and drawn", async ({ redlatch }) => {
  const client = await createClient({ url: redlatch.url, name: "worker" }).connect();
  onTestFinished(() => client.destroy());
  for (const value of ["one", "two"]) await client.set("lock:stock", value, { condition: "NX" });
  expect(await redlatch.calls({ key: "lock:*" })).toEqual({ SET: 2 });
  const events = await redlatch.history({ command: "SET", count: 1 });
  expect(events).toHaveLength(1);
  expect(events[0]).toMatchObject({ command: "SET", key: "lock:stock", name: "worker", node: 1 });
  expect(await redlatch.timeline()).toContain("lock:stock");
  expect(await redlatch.timeline({ format: "html" })).toContain("<table>");
});

test("a grant and a refusal are events", async ({ redlatch }) => {
  const client = new Redis(redlatch.url);
  onTestFinished(() => client.disconnect());
  for (const value of ["one", "two"]) await client.set("lock:stock", value, "PX", 30_000, "NX");
  const events = await redlatch.history({ key: "lock:stock" });
  const [granted, refused] = events.filter(({ kind }) => kind === "granted" || kind === "refused");
  expect(granted).toMatchObject({ kind: "granted", holder: "one", lease: 30_000, request: events[0].id });
  expect(refused).toMatchObject({ kind: "refused", holder: "two" });
});

test("the checker finds a lock that is deleted without a comparison", async ({ redlatch }) => {
  const client = new Redis(redlatch.url);
  onTestFinished(() => client.disconnect());
  await client.set("lock:stock", "worker", "PX", 30_000, "NX");
  expect(await redlatch.check()).toEqual([]);
  await client.del("lock:stock");
  const [finding] = await redlatch.check();
  expect(finding).toMatchObject({ rule: "blind-delete", key: "lock:stock" });
  expect(finding.lines.length).toBeGreaterThan(0);
});
