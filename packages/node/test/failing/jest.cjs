// Fails on purpose: reporting.test.js looks at what is told about it.
const { createClient } = require("redis");

test("fails", async () => {
  const client = await createClient({ url: redlatch.url }).connect();
  await redlatch.faults.dropReply({ command: "SETNX" });
  await client.set("lock:shown", "worker");
  client.destroy();
  expect(1).toBe(2);
});
