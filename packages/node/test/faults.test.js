// Faults, with ioredis and node-redis.
import { Redis } from "ioredis";
import { createClient } from "redis";
import Redlock from "redlock";
import { expect, onTestFinished } from "vitest";
import { test } from "redlatch/vitest/test";

const connect = async (url) => {
  const client = await createClient({ url, socket: { reconnectStrategy: false } }).on("error", () => {}).connect();
  onTestFinished(() => client.isOpen && client.destroy());
  return client;
};

test("a lost reply: the lock is taken, and its holder does not know", async ({ redlatch }) => {
  const client = new Redis(redlatch.url, { maxRetriesPerRequest: 0 });
  onTestFinished(() => client.disconnect());
  const fault = await redlatch.faults.dropReply({ command: "SET", key: "st*", times: 1 });
  await expect(client.set("stock", "worker", "PX", 30_000, "NX")).rejects.toThrow();
  expect(await fault.hits()).toBe(1);
  expect(await client.get("stock")).toBe("worker");
});

test("a lost reply: a client that asks again is refused by its own lock", async ({ redlatch }) => {
  const client = new Redis(redlatch.url);
  onTestFinished(() => client.disconnect());
  await redlatch.faults.dropReply({ command: "SET", times: 1 });
  expect(await client.set("stock", "worker", "PX", 30_000, "NX")).toBeNull();
  expect(await client.get("stock")).toBe("worker");
});

test("a lost reply: redlock gives back what it may have got", async ({ redlatch }) => {
  const client = new Redis(redlatch.url, { maxRetriesPerRequest: 0 });
  onTestFinished(() => client.disconnect());
  const redlock = new Redlock([client], { retryCount: 0 });
  await redlatch.faults.dropReply({ script: "acquire", times: 1 });
  await expect(redlock.lock("stock", 30_000)).rejects.toThrow();
  await (await redlock.lock("stock", 30_000)).unlock();
});

const ENDS = {
  dropReply: { isCarriedOut: true },
  halfReply: { isCarriedOut: true },
  dropBefore: { isCarriedOut: false },
  reset: { isCarriedOut: false },
};

for (const [name, { isCarriedOut }] of Object.entries(ENDS)) {
  test(`${name} ends the connection`, async ({ redlatch }) => {
    const client = await connect(redlatch.url);
    const fault = await redlatch.faults[name]({ command: "INCR", key: "count*" });
    await expect(client.incr("counter")).rejects.toThrow();
    expect(await (await connect(redlatch.url)).get("counter")).toBe(isCarriedOut ? "1" : null);
    expect([await fault.met(), await fault.hits()]).toEqual([1, 1]);
  });
}

test("an error is the reply, for every second request", async ({ redlatch }) => {
  const client = await connect(redlatch.url);
  await redlatch.faults.error("OOM no memory", { command: "INCR", every: 2 });
  expect(await client.incr("counter")).toBe(1);
  await expect(client.incr("counter")).rejects.toThrow("OOM no memory");
  expect(await client.incr("counter")).toBe(2);
});

test("a request is carried out twice, and a lease ends early", async ({ redlatch }) => {
  const client = await connect(redlatch.url);
  await redlatch.faults.duplicate({ command: "INCR" });
  expect(await client.incr("counter")).toBe(2);
  await redlatch.faults.expireKey({ command: "SET", nth: 1 });
  await client.set("lease", "value", { expiration: { type: "PX", value: 30_000 } });
  expect(await client.exists("lease")).toBe(0);
});

test("delays are those of the clock", async ({ redlatch }) => {
  const [client, other] = [await connect(redlatch.url), await connect(redlatch.url)];
  await redlatch.clock.freeze();
  await redlatch.faults.stall(1_000, { command: "INCR", times: 1 });
  await redlatch.faults.delay(1_000, { command: "DECR" });
  const stalled = client.incr("counter");
  while ((await other.get("counter")) !== "1");
  await redlatch.clock.advance(1_001);
  expect(await stalled).toBe(1);
  const delayed = client.decr("counter");
  while ((await redlatch.faults.list())[1].hits === 0);
  expect(await other.get("counter")).toBe("1");
  await redlatch.clock.advance(1_001);
  expect(await delayed).toBe(0);
});

test("faults are listed and removed", async ({ redlatch }) => {
  const fault = await redlatch.faults.dropReply({ command: "SET", probability: 0.5 });
  await redlatch.faults.dropReply({ command: "GET" });
  expect((await redlatch.faults.list()).map(({ id }) => id)).toEqual([1, 2]);
  expect(await fault.remove()).toBe(true);
  expect(await fault.remove()).toBe(false);
  await expect(fault.hits()).rejects.toThrow("removed");
  expect(await redlatch.faults.clear()).toBe(1);
  await expect(redlatch.faults.dropReply({ comand: "SET" })).rejects.toThrow("no condition comand");
});
