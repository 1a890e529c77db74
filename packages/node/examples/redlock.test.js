import { Redis } from "ioredis";
import Redlock from "redlock";
import { expect, onTestFinished } from "vitest";
import { test } from "redlatch/vitest/test";

test("redlock with crashed nodes", async ({ redlatch }) => {
  const connect = (url) => new Redis(url, { retryStrategy: () => null }).on("error", () => {});
  const clients = redlatch.urls.map(connect);
  onTestFinished(() => clients.forEach((client) => client.disconnect()));
  const redlock = new Redlock(clients, { retryCount: 0 });

  await redlatch.clock.freeze();
  const held = await redlock.lock("stock", 30_000);
  await redlatch.nodes.crash(1);
  await redlatch.nodes.crash(2);
  await held.extend(30_000); // three of five still know the lock
  await expect(redlock.lock("stock", 30_000)).rejects.toThrow();

  await redlatch.nodes.crash(3);
  await expect(held.extend(30_000)).rejects.toThrow(); // two are no majority
  await redlatch.clock.advance(30_001);
  await expect(redlock.lock("stock", 30_000)).rejects.toThrow();
});
