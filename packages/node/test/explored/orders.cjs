// What explore.test.js explores, by three frameworks: code that takes a lock, and what else a test may do to its process.
const assert = require("node:assert");
const { execFileSync } = require("node:child_process");
const { appendFileSync } = require("node:fs");
const { createClient } = require("redis");

const TAKE = ["SET", "orders", "me", "NX", "PX", "5000"];
const RELEASE = 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end';

let runs = 0;

exports.wrong = () =>
  connected(async (client) => {
    assert.equal(await client.sendCommand(TAKE), "OK");
    await client.incr("paid");
    await client.del("orders");
  });

exports.right = () =>
  connected(async (client) => {
    runs += 1;
    assert.equal(runs, 1, "a run before this one has left something");
    const taken = await client.sendCommand(TAKE).catch(async (error) => {
      // It may have been granted.
      await release(client);
      throw error;
    });
    assert.equal(taken, "OK");
    await client.incr("paid");
    assert.equal(await release(client), 1, "the lock was lost");
  });

exports.throws = async () => {
  throw new Error("so it is");
};

exports.prints = async () => {
  console.log("by the console");
  process.stdout.write("by the stream\n");
  execFileSync(process.execPath, ["-e", "console.log('by a child')"], { stdio: "inherit" });
};

exports.closes = () => connected(async () => appendFileSync(process.env.PIDS, `${process.pid}\n`));

exports.leaves = async () => {
  appendFileSync(process.env.PIDS, `${process.pid}\n`);
  await createClient({ url: process.env.REDIS_URL }).connect();
};

exports.exits = async () => process.exit(3);

exports.hangs = async () => {
  appendFileSync(process.env.PIDS, `${process.pid}\n`);
  for (;;);
};

async function connected(work) {
  const client = createClient({ url: process.env.REDIS_URL });
  // What is lost is told by the command that waits for its reply.
  client.on("error", () => {});
  await client.connect();
  try {
    await work(client);
  } finally {
    client.destroy();
  }
}

function release(client) {
  return client.sendCommand(["EVAL", RELEASE, "1", "orders", "me"]);
}
