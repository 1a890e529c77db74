// node-redis-warlock: `lock`, and the function that it hands over.
import { promisify } from "node:util";
import Warlock from "node-redis-warlock";
import redis from "redis3";

const client = redis.createClient(process.env.REDIS_URL);
const warlock = Warlock(client);
const lock = promisify(warlock.lock.bind(warlock));
const release = await lock("orders", 10_000);
if (!release) throw new Error("somebody else has it");
await promisify(client.incr.bind(client))("paid");
await promisify(release)();
client.quit();
