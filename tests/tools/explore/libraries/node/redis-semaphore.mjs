// redis-semaphore: a Mutex that is refreshed once while it is held.
import { setTimeout } from "node:timers/promises";
import Redis from "ioredis";
import semaphore from "redis-semaphore";

const client = new Redis(process.env.REDIS_URL);
const mutex = new semaphore.Mutex(client, "orders", { lockTimeout: 5_000, refreshInterval: 1_500 });
await mutex.acquire();
await client.incr("paid");
await setTimeout(2_000);
await mutex.release();
client.disconnect();
