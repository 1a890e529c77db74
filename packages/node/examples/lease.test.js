import { Redis } from "ioredis";
import { Mutex } from "redis-semaphore";
import { expect, onTestFinished } from "vitest";
import { test } from "redlatch/vitest/test";

test("a lease ends without sleep", async ({ redlatch }) => {
  const client = new Redis(redlatch.url);
  onTestFinished(() => client.disconnect());
  const crashed = new Mutex(client, "stock", { lockTimeout: 30_000, refreshInterval: 0 });
  const next = new Mutex(client, "stock", { acquireAttemptsLimit: 1 });

  await redlatch.clock.freeze();
  await crashed.acquire();
  await redlatch.clock.advance(30_000); // the last millisecond of the lease
  expect(await next.tryAcquire()).toBe(false);
  await redlatch.clock.advance(1);
  expect(await next.tryAcquire()).toBe(true);
  await next.release();
});
