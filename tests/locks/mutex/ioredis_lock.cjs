// ioredis in Sentinel mode as one of the clients: what it asks and hears, in the lines of history.rs.

const fs = require("node:fs");
const { setTimeout: sleep } = require("node:timers/promises");
const Redis = require(require.resolve("ioredis", { paths: [process.cwd()] }));

const { REDLATCH_MUTEX_SENTINELS, REDLATCH_MUTEX_MILLIS, REDLATCH_MUTEX_HISTORY } = process.env;
const LOCKS = ["lock:one", "lock:two", "lock:three"];
const RELEASE = 'if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end';

const end = performance.now() + Number(REDLATCH_MUTEX_MILLIS);
const book = fs.openSync(REDLATCH_MUTEX_HISTORY, "a");
const sentinels = REDLATCH_MUTEX_SENTINELS.split(",").map((address) => {
    const [host, port] = address.split(":");
    return { host, port: Number(port) };
});
const retry = () => 20;
const redis = new Redis({
    sentinels,
    name: "mymaster",
    sentinelRetryStrategy: retry,
    retryStrategy: retry,
    connectTimeout: 1000,
    socketTimeout: 3000,
    // A call that is sent twice would be two calls to the checker.
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: null,
    commandTimeout: 3000,
});
redis.on("error", () => {});
let calls = 0;

/** Writes the call down before it leaves, and its answer when it is there. */
async function record(lock, verb, token, leaseMs, act) {
    const name = `io-${process.pid}-${++calls}`;
    const lease = leaseMs === null ? "" : ` ${leaseMs}`;
    fs.writeSync(book, `sent ${name} ${process.hrtime.bigint()} ${lock} ${verb} ${token}${lease}\n`);
    const isDone = await act();
    fs.writeSync(book, `got ${name} ${process.hrtime.bigint()} ${isDone ? "yes" : "no"}\n`);
    return isDone;
}

async function use(lock) {
    const leaseMs = 1 + Math.floor(Math.random() * 4000);
    const token = `io-${process.pid}-${calls}-lock`;
    const acquire = async () => (await redis.set(lock, token, "PX", leaseMs, "NX")) === "OK";
    if (!(await record(lock, "acquire", token, leaseMs, acquire))) return;
    await sleep((Math.random() * leaseMs) / 2);
    await record(lock, "release", token, null, async () => (await redis.eval(RELEASE, 1, lock, token)) === 1);
}

async function main() {
    while (performance.now() < end) {
        // After the end of its connection a call stays without an answer.
        await use(LOCKS[Math.floor(Math.random() * LOCKS.length)]).catch(() => {});
        await sleep(Math.random() * 20);
    }
    process.exit(0);
}

main();
