// Locks of redlatch for programs that use ioredis or node-redis. All times are in milliseconds.

export { Deadlock, LockError, LockHeld, LockLost, NotSupported, Refused, StaleToken, Unreachable } from "./lib/errors.js";
export { Holder } from "./lib/holder.js";
export { once } from "./lib/jobs.js";
export { Held, Lock, Locks } from "./lib/locks.js";
