import assert from "node:assert/strict";
import { test } from "node:test";
import { Redis } from "ioredis";
import { start } from "redlatch";
import Redlock from "redlock";
import { Stopwatch } from "./stopwatch.js";

test("lease", async (t) => {
  const stopwatch = new Stopwatch();
  const server = await start();
  const redlatch = server.namespace();
  await redlatch.clock.freeze();
  stopwatch.print("start");
  const clients = [new Redis(redlatch.url), new Redis(redlatch.url)];
  t.after(() => {
    clients.forEach((client) => client.disconnect());
    return server.stop();
  });
  const [first, second] = clients.map((client) => new Redlock([client], { retryCount: 0 }));

  const lease = await first.acquire(["stock"], 30_000);
  await assert.rejects(second.acquire(["stock"], 30_000));
  await redlatch.clock.advance(31_000);
  await second.acquire(["stock"], 30_000);
  await assert.rejects(lease.release());
  stopwatch.print("body");
});
