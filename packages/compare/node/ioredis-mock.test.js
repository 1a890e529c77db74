import assert from "node:assert/strict";
import { mock, test } from "node:test";
import Redis from "ioredis-mock";
import Redlock from "redlock";
import { Stopwatch } from "./stopwatch.js";

// Clients with the same host and port are clients of the same data. There is no server: only this process can be a client.
// The moved clock is `Date` of the whole process. BLPOP is not supported.
test("lease", async (t) => {
  const stopwatch = new Stopwatch();
  mock.timers.enable({ apis: ["Date"], now: 1_700_000_000_000 });
  t.after(() => mock.timers.reset());
  stopwatch.print("start");
  const [first, second] = [new Redis(), new Redis()].map((client) => new Redlock([client], { retryCount: 0 }));

  const lease = await first.acquire(["stock"], 30_000);
  await assert.rejects(second.acquire(["stock"], 30_000));
  mock.timers.tick(31_000);
  await second.acquire(["stock"], 30_000);
  await assert.rejects(lease.release());
  stopwatch.print("body");
});
