// Jobs that a scheduler starts in several processes, and of which one may run: node-cron, BullMQ, and others.

import { LockError, LockHeld } from "./errors.js";
import { now } from "./hold.js";
import { warn } from "./keeper.js";
import { duration } from "./terms.js";

export function once(locks, key, { atLeast = 0, ...options }, job) {
  const lock = locks.lock(key, options);
  const least = duration("atLeast", atLeast, 0);
  return async function run(...args) {
    let held;
    try {
      held = await lock.acquire();
    } catch (error) {
      if (error instanceof LockHeld) return undefined;
      throw error;
    }
    const begun = now();
    try {
      const result = await job.apply(this, args);
      held.throwIfLost();
      return result;
    } finally {
      await end(held, begun + least - now());
    }
  };
}

async function end(held, rest) {
  try {
    if (rest > 0 && !held.lost.aborted) await held.leave(rest);
    else await held.release();
  } catch (error) {
    if (!(error instanceof LockError)) throw error;
    warn(`${held.key} ends with its lease: ${error.message}`);
  }
}
