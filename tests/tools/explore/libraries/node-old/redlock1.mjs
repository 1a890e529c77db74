// redlock 1: `lock` and `unlock`.
import Redis from "ioredis";
import Redlock from "redlock1";

const client = new Redis(process.env.REDIS_URL);
const lock = await new Redlock([client]).lock("orders", 10_000);
await client.incr("paid");
await lock.unlock();
client.disconnect();
