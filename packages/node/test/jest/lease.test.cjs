// The Jest environment: a namespace for each test, the same verbs.
const { Redis } = require("ioredis");
const { Mutex } = require("redis-semaphore");

let client;
let before;

beforeEach(() => {
  client = new Redis(redlatch.url);
});

afterEach(() => client.disconnect());

test("a lease ends without sleep", async () => {
  await redlatch.clock.freeze();
  before = redlatch.name;
  const next = new Mutex(client, "stock", { acquireAttemptsLimit: 1 });
  await new Mutex(client, "stock", { lockTimeout: 30_000, refreshInterval: 0 }).acquire();
  await redlatch.clock.advance(30_000);
  expect(await next.tryAcquire()).toBe(false);
  await redlatch.clock.advance(1);
  expect(await next.tryAcquire()).toBe(true);
  await next.release();
});

test("each test has a namespace of its own, and the one before is gone", async () => {
  expect(redlatch.name).not.toBe(before);
  expect((await redlatch.clock.show()).mode).toBe("running");
  expect((await redlatchServer.namespaces()).map(({ name }) => name)).not.toContain(before);
});

test("the options of the environment are those of start()", async () => {
  expect(await redlatch.nodes.list()).toHaveLength(5);
});
