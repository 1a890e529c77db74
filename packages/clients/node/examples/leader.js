// One process of several leads, as long as its connection lasts. What it does is aborted when it leads no more.

import { LockLost } from "redlatch-client";

/** `work(token, signal)` ends when the signal is aborted. `stop` ends all of it. */
export async function leadForever(locks, work, stop) {
  const leading = locks.lock("lock:leader", { session: true, delay: 2_000, wait: Infinity, signal: stop });
  while (!stop.aborted) {
    try {
      await leading.using((held) => work(held.token, AbortSignal.any([held.lost, stop])));
    } catch (error) {
      if (!(error instanceof LockLost) && !stop.aborted) throw error;
      console.log(error.message);
    }
  }
}
