// @sesamecare-oss/redlock: `acquire` and `release`.
import Redis from "ioredis";
import { Redlock } from "@sesamecare-oss/redlock";

const client = new Redis(process.env.REDIS_URL);
const lock = await new Redlock([client]).acquire(["orders"], 10_000);
await client.incr("paid");
await lock.release();
client.disconnect();
