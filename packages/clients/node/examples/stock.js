// Takes a lock, works while it is held, and says who has it if it is not granted.

import { LockHeld } from "redlatch-client";

/** `locks`: one for the whole program, `new Locks(client)`. */
export async function restock(locks, articles, write) {
  const lock = locks.lock("lock:stock", { wait: 5_000, meta: { reason: "delivery 4711" } });
  try {
    await lock.using(async (held) => {
      for (const article of articles) {
        held.throwIfLost();
        await write(article, held.token);
      }
    });
  } catch (error) {
    if (!(error instanceof LockHeld)) throw error;
    console.log(error.message); // who has it, why, since when, and how to break it
    return false;
  }
  return true;
}
