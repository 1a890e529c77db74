// A job of node-cron that runs in one of several processes.

import { once } from "redlatch-client";

export function schedule(cron, locks, report) {
  // For a job that starts once a minute: nobody starts it again in this minute, not even with a clock that is behind.
  return cron.schedule("* * * * *", once(locks, "lock:report", { atLeast: 50_000 }, report));
}
