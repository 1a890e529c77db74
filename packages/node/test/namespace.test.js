// Namespaces and nodes, with node-redis.
import { createClient } from "redis";
import { expect, inject, onTestFinished } from "vitest";
import { attach } from "redlatch";
import { test } from "redlatch/vitest/test";

const connect = async (url) => {
  const client = await createClient({ url, socket: { reconnectStrategy: false } }).on("error", () => {}).connect();
  onTestFinished(() => client.isOpen && client.destroy());
  return client;
};

test("a namespace has its own keys and its own clock", async ({ redlatch }) => {
  const server = attach(inject("redlatch"));
  const other = server.namespace("node-tests/other");
  onTestFinished(() => other.drop());
  const [here, there] = [await connect(redlatch.url), await connect(other.url)];
  await redlatch.clock.freeze();
  await here.set("key", "here");
  expect(await there.get("key")).toBeNull();
  expect((await other.clock.show()).mode).toBe("running");
  const names = (await server.namespaces()).map(({ name }) => name);
  expect(names).toEqual(expect.arrayContaining([redlatch.name, "node-tests/other"]));
});

test("a dropped namespace disconnects its clients", async ({ redlatch }) => {
  const server = attach(inject("redlatch"));
  const other = server.namespace();
  const client = await connect(other.url);
  expect(await other.drop()).toBe(true);
  await expect(client.ping()).rejects.toThrow();
  expect(await server.drop(other.name)).toBe(false);
});

test("a node crashes, and starts again with or without its keys", async ({ redlatch }) => {
  const fill = async () => (await connect(redlatch.urls[0])).set("key", "value");
  await fill();
  await redlatch.nodes.crash(1, { keep: true });
  await expect(connect(redlatch.urls[0])).rejects.toThrow();
  expect((await redlatch.nodes.list())[0]).toMatchObject({ node: 1, state: "crashed" });
  await redlatch.nodes.start(1);
  expect(await (await connect(redlatch.urls[0])).get("key")).toBe("value");
  await redlatch.nodes.crash(1);
  await redlatch.nodes.start(1);
  expect(await (await connect(redlatch.urls[0])).get("key")).toBeNull();
});

test("a paused node answers when it is resumed", async ({ redlatch }) => {
  const client = await connect(redlatch.urls[0]);
  await redlatch.nodes.pause(1);
  let isAnswered = false;
  const answer = client.ping().finally(() => (isAnswered = true));
  // Other nodes answer for this one: the clock can be moved while it is paused.
  await redlatch.clock.advance(1_000);
  expect((await redlatch.nodes.list())[0].state).toBe("paused");
  expect(isAnswered).toBe(false);
  await redlatch.nodes.resume(1);
  expect(await answer).toBe("PONG");
});

test("a node is ahead of the others, and its leases end so much earlier", async ({ redlatch }) => {
  await redlatch.clock.freeze();
  const client = await connect(redlatch.urls[1]);
  await client.set("key", "value", { expiration: { type: "PX", value: 5_000 } });
  await redlatch.nodes.skew(2, 3_000);
  expect((await redlatch.nodes.list())[1].skew).toBe(3_000);
  expect(await client.pTTL("key")).toBe(2_000);
});

test("a partition separates some clients from a node", async ({ redlatch }) => {
  const [near, far] = [await connect(redlatch.urls[1]), await connect(redlatch.urls[1])];
  await far.sendCommand(["CLIENT", "SETNAME", "far"]);
  await redlatch.nodes.partition(2, { client: "far" });
  let isAnswered = false;
  far.ping().then(() => (isAnswered = true), () => {});
  expect(await near.ping()).toBe("PONG");
  expect((await redlatch.nodes.list())[1].partitions).toEqual(["far"]);
  expect(isAnswered).toBe(false);
  await redlatch.nodes.heal(2);
  expect((await redlatch.nodes.list())[1].partitions).toEqual([]);
});
