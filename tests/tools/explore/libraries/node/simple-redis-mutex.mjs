// simple-redis-mutex: `lock`, and the function that it returns.
import { createClient } from "redis";
import { lock } from "simple-redis-mutex";

const client = await createClient({ url: process.env.REDIS_URL }).on("error", () => {}).connect();
const release = await lock(client, "orders", { timeout: 10_000, failAfter: 5_000 });
await client.incr("paid");
await release();
client.destroy();
process.exit();
