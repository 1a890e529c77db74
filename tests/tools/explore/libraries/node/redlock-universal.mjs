// redlock-universal: `acquire` and `release`.
import Redis from "ioredis";
import { createLock, IoredisAdapter } from "redlock-universal";

const client = new Redis(process.env.REDIS_URL);
const lock = createLock({ adapter: new IoredisAdapter(client), key: "orders", ttl: 10_000 });
const handle = await lock.acquire();
await client.incr("paid");
await lock.release(handle);
client.disconnect();
