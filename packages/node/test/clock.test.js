// The clock, with node-redis.
import { createClient } from "redis";
import { expect, onTestFinished, vi } from "vitest";
import { test } from "redlatch/vitest/test";

const connect = async (url) => {
  const client = await createClient({ url }).on("error", () => {}).connect();
  onTestFinished(() => client.destroy());
  return client;
};

test("time stands still, moves, and runs again", async ({ redlatch }) => {
  const client = await connect(redlatch.url);
  const frozen = await redlatch.clock.freeze();
  await client.set("key", "value", { expiration: { type: "PX", value: 1_000 } });
  expect(await redlatch.clock.advance(400)).toBe(frozen + 400);
  expect(await client.pTTL("key")).toBe(600);
  expect(await redlatch.clock.set(new Date(frozen + 900))).toBe(frozen + 900);
  expect(await client.pTTL("key")).toBe(100);
  expect(await redlatch.clock.now()).toBe(frozen + 900);
  await redlatch.clock.run();
  expect((await redlatch.clock.show()).mode).toBe("running");
});

test("next goes to the next deadline, and null says that there is none", async ({ redlatch }) => {
  const client = await connect(redlatch.url);
  const frozen = await redlatch.clock.freeze();
  await client.set("key", "value", { expiration: { type: "PX", value: 5_000 } });
  const { deadlines } = await redlatch.clock.show();
  expect(deadlines[0]).toMatchObject({ what: "key", key: "key" });
  expect(await redlatch.clock.next()).toBeGreaterThanOrEqual(frozen + 5_000);
  expect(await client.exists("key")).toBe(0);
  expect(await redlatch.clock.next()).toBeNull();
});

test("an earlier moment is refused", async ({ redlatch }) => {
  await expect(redlatch.clock.set(1)).rejects.toMatchObject({ name: "CommandError", code: "ERR" });
});

test("a wait ends when the clock gets there", async ({ redlatch }) => {
  const client = await connect(redlatch.url);
  await redlatch.clock.freeze();
  const popped = client.blPop("queue", 60);
  await vi.waitUntil(async () => (await redlatch.clock.show()).deadlines.some(({ what }) => what === "wait"));
  await redlatch.clock.advance(60_001);
  expect(await popped).toBeNull();
});

test("auto goes to the next deadline while all clients wait", async ({ redlatch }) => {
  const client = await connect(redlatch.url);
  await redlatch.clock.auto(true, { idle: 5 });
  const began = performance.now();
  expect(await client.blPop("queue", 3_600)).toBeNull();
  expect(performance.now() - began).toBeLessThan(5_000);
  await redlatch.clock.auto(false);
  expect((await redlatch.clock.show()).mode).toBe("frozen");
});

test("a step of the wall clock ends no lease", async ({ redlatch }) => {
  const client = await connect(redlatch.url);
  const frozen = await redlatch.clock.freeze();
  await client.set("key", "value", { expiration: { type: "PX", value: 5_000 } });
  expect(await redlatch.clock.stepWall(3_600_000)).toBe(frozen + 3_600_000);
  expect(await client.pTTL("key")).toBe(5_000);
});
