// @verrou/core, the locks of AdonisJS: `run`.
import { Verrou } from "@verrou/core";
import { redisStore } from "@verrou/core/drivers/redis";
import Redis from "ioredis5";

const client = new Redis(process.env.REDIS_URL);
const verrou = new Verrou({
  default: "redis",
  stores: { redis: { driver: redisStore({ connection: client }) } },
});
const [ran] = await verrou.createLock("orders", 10_000).run(() => client.incr("paid"));
if (!ran) throw new Error("somebody else has it");
client.disconnect();
