// Fails on purpose: reporting.test.js looks at what is told about it.
import { createClient } from "redis";
import { expect } from "vitest";
import { test } from "redlatch/vitest/test";

test("fails", async ({ redlatch }) => {
  const client = await createClient({ url: redlatch.url }).connect();
  await redlatch.faults.dropReply({ command: "SETNX" });
  await client.set("lock:shown", "worker");
  client.destroy();
  expect(1).toBe(2);
});
