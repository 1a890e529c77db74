import { Redis } from "ioredis";
import Redlock from "redlock";
import { expect, onTestFinished } from "vitest";
import { test } from "redlatch/vitest/test";

test("a renewal that is lost", async ({ redlatch }) => {
  // Otherwise ioredis would send the lost request again.
  const client = new Redis(redlatch.url, { maxRetriesPerRequest: 0 });
  onTestFinished(() => client.disconnect());
  const redlock = new Redlock([client], { retryCount: 0 });

  await redlatch.clock.freeze();
  const held = await redlock.lock("stock", 30_000);
  await redlatch.clock.advance(20_000);
  const fault = await redlatch.faults.dropBefore({ script: "extend" });
  await expect(held.extend(30_000)).rejects.toThrow();
  expect(await fault.hits()).toBe(1);

  // The lease was not renewed, so another one gets the lock, and the first cannot release it.
  await redlatch.clock.advance(10_001);
  const next = await redlock.lock("stock", 30_000);
  await expect(held.unlock()).rejects.toThrow();
  await next.unlock();
});
