// What explore.test.js explores, by three frameworks: code that takes a lock, and what else a test may do to its process.
const assert = require("node:assert");
const { execFileSync } = require("node:child_process");
const { appendFileSync } = require("node:fs");
const { createClient } = require("redis");

const TAKE = ["SET", "orders", "me", "NX", "PX", "5000"];
const RELEASE = 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end';
/** How often a server that restarts is asked again. */
const TRIES = 20_000;

let runs = 0;

/** With the variable MENDED it is right. */
exports.wrong = () => (process.env.MENDED ? exports.right() : pay());

const pay = () =>
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
      await giveBack();
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
  await connect();
};

exports.exits = async () => process.exit(3);

exports.hangs = async () => {
  appendFileSync(process.env.PIDS, `${process.pid}\n`);
  for (;;);
};

async function connected(work) {
  const client = await connect();
  try {
    return await work(client);
  } finally {
    if (client.isOpen) client.destroy();
  }
}

/** A client that does not connect again: what is lost is told by the command that waits for its reply. */
function connect() {
  const client = createClient({ url: process.env.REDIS_URL, socket: { reconnectStrategy: false } });
  return client.on("error", () => {}).connect();
}

async function giveBack() {
  for (let tries = 1; ; tries += 1) {
    try {
      return await connected(release);
    } catch (error) {
      if (tries === TRIES) throw error;
    }
  }
}

function release(client) {
  return client.sendCommand(["EVAL", RELEASE, "1", "orders", "me"]);
}
