import { Redis } from "ioredis";
import { Mutex } from "redis-semaphore";
import { expect, onTestFinished } from "vitest";
import { test } from "redlatch/vitest/test";

test("a holder that pauses past its lease is stopped by its fencing token", async ({ redlatch }) => {
  const worker = (connectionName) => {
    const client = new Redis(redlatch.url, { connectionName });
    onTestFinished(() => client.disconnect());
    const mutex = new Mutex(client, "stock", { lockTimeout: 30_000, refreshInterval: 0 });
    const token = () => client.call("LOCK.TOKEN", "mutex:stock", mutex.identifier);
    // What the lock protects refuses a token that is lower than one it has seen.
    const write = (token) => client.call("LOCK.GUARD", "stock:file", token);
    return { mutex, token, write };
  };
  const [slow, other] = [worker("slow"), worker("other")];

  await redlatch.clock.freeze();
  await redlatch.faults.pauseClient(60_000, { client: "slow", command: "LOCK.TOKEN" });
  await slow.mutex.acquire();
  const late = slow.write(await slow.token()); // it pauses here, and believes that it holds the lock

  await redlatch.clock.advance(30_001);
  await other.mutex.acquire();
  expect(await other.write(await other.token())).toBe(1);

  const refused = expect(late).rejects.toThrow("STALE");
  await redlatch.clock.advance(30_000); // the pause ends
  await refused;
});
