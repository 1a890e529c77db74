// redis-lock: `lock`, and the function that it hands over.
import { promisify } from "node:util";
import redis from "redis3";
import redisLock from "redis-lock";

const client = redis.createClient(process.env.REDIS_URL);
const done = await promisify(redisLock(client))("orders");
await promisify(client.incr.bind(client))("paid");
await done();
client.quit();
