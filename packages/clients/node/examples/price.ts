// `await using` releases the lock at the end of the block, in TypeScript and in Node 24.

import { Redis } from "ioredis";
import { Locks } from "redlatch-client";

const locks = new Locks(new Redis());

export async function setPrice(write: (price: number, token: number | null) => Promise<void>): Promise<void> {
  await using held = await locks.lock("lock:price", { wait: 5_000, lease: 10_000 }).acquire();
  await write(42, held.token);
}
