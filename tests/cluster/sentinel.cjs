// A program that finds the leader by Sentinel, holds a lock, and still holds it after the leader's end.
//
// Arguments: the ports of the nodes. Says "holds", waits for a line, says "still" when it has asked the new leader.

const assert = require("node:assert");
const readline = require("node:readline");
const Redis = require(require.resolve("ioredis", { paths: [process.cwd()] }));

const sentinels = process.argv.slice(2).map((port) => ({ host: "127.0.0.1", port: Number(port) }));
const retry = () => 50;
const redis = new Redis({ sentinels, name: "mymaster", sentinelRetryStrategy: retry, retryStrategy: retry, maxRetriesPerRequest: null });
redis.on("error", () => {});

async function main() {
    assert.equal(await redis.set("by-ioredis", "me", "PX", 60000, "NX"), "OK");
    console.log("holds");
    for await (const _ of readline.createInterface({ input: process.stdin })) break;
    assert.equal(await redis.get("by-ioredis"), "me");
    assert.equal(await redis.set("by-ioredis", "other", "PX", 60000, "NX"), null);
    console.log("still", redis.stream.remotePort);
    const release = 'if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end';
    assert.equal(await redis.eval(release, 1, "by-ioredis", "me"), 1);
    assert.equal(await redis.set("by-ioredis", "other", "PX", 60000, "NX"), "OK");
    redis.disconnect();
}

main().catch((error) => {
    console.log("failed", error);
    process.exit(1);
});
