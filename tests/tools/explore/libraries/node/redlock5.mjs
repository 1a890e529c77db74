// redlock 5: `acquire` and `release`.
import { createRequire } from "node:module";
import Redis from "ioredis";

// Its import map leads Node to a file that is not marked as a module; the CommonJS build does load.
const { default: Redlock } = createRequire(import.meta.url)("redlock5");
const client = new Redis(process.env.REDIS_URL, { protocol: 2 });
const lock = await new Redlock([client]).acquire(["orders"], 10_000);
await client.incr("paid");
await lock.release();
client.disconnect();
