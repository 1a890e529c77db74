// @microfleet/ioredis-lock: `acquire` and `release`.
import Redis from "ioredis5";
import { createLock } from "@microfleet/ioredis-lock";

const client = new Redis(process.env.REDIS_URL);
const lock = createLock(client, { timeout: 10_000, retries: 3, delay: 100 });
await lock.acquire("orders");
await client.incr("paid");
await lock.release();
client.disconnect();
