/** Locks of redlatch for programs that use ioredis or node-redis. All times are in milliseconds. */

import type { LossReason } from "./lib/generated.js";

/** A client of ioredis (`Redis`, `Cluster`) or of node-redis (`createClient`, `createCluster`, `createSentinel`). */
export type Client =
  | { duplicate(...options: any[]): unknown; callBuffer(...words: any[]): unknown }
  | { duplicate(...options: any[]): unknown; sendCommand(...words: any[]): unknown }
  | { getMasterNode(): unknown; sendCommand(...words: any[]): unknown };

/** A string or bytes. */
export type Key = string | Buffer;

/**
 * The locks of a server. One object serves the whole program.
 *
 * It makes connections of its own, by `client.duplicate()`: one for requests, one that listens for losses, one for each
 * request that waits and each session; in a cluster so for each node. They do not keep the process alive.
 */
export class Locks implements AsyncDisposable {
  /** Sends nothing. Throws a TypeError for what is no such client, and a RangeError for what is no budget. */
  constructor(client: Client, options?: LocksOptions);
  /**
   * The lock of a key. Nothing is sent before it is taken. Throws a RangeError or a TypeError for options that no server
   * would grant.
   *
   * A `keyPrefix` of the client stands before the key.
   */
  lock(key: Key, options?: LockOptions): Lock;
  /**
   * The locks of several keys, taken all or none, with one token: exclusive, unless `modes` says otherwise. In a cluster they
   * must be of one slot.
   */
  all(keys: Iterable<Key>, options?: AllOptions): Lock;
  /**
   * The lock of one of several keys: the first that is free, in their order. Its `key` says which. A wait ends with the first
   * that becomes free. In a cluster they must be of one slot.
   *
   * The same owner gets the same key again, so an `owner` of your own holds one of them at most.
   */
  anyOf(keys: Iterable<Key>, options?: AllOptions): Lock;
  /** How many open holds were returned: see `onUnavailable`. */
  readonly opened: number;
  /** Who holds a key; null if nobody does. Rejects with `Unreachable` or `Refused`. */
  lockedBy(key: Key): Promise<Holder | null>;
  /**
   * Ends the connections. What waits is rejected with `Unreachable`; locks that are held are not renewed any more, and
   * sessions end. The client stays open.
   */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface LocksOptions {
  /**
   * How long a call may take beside its `wait`: connecting, all tries and the pauses between them together. Beyond it, the
   * call is rejected with `Unreachable`. Default: 5,000.
   */
  budget?: number;
  /**
   * What a call does that no server has answered. `closed`: it is rejected with `Unreachable`. `open`: it resolves to an open
   * hold, which is no lock; each is a warning of the process with the code `REDLATCH_OPEN_HOLD`. Default: `closed`.
   */
  onUnavailable?: "closed" | "open";
}

/** Held with other readers; or `[n, limit]`: n permits of a semaphore that has `limit`. */
export type Mode = "shared" | readonly [n: number, limit: number];

export interface AllOptions extends TakeOptions {
  /** How keys are taken that are not exclusive. Each must be one of the keys of the lock. */
  modes?: Readonly<Record<string, Mode>>;
}

export interface TakeOptions {
  /** Until when the lock ends if it is neither renewed nor released. 1 ms to ten years. Default: 30,000. */
  lease?: number;
  /** How long to wait for a lock that is held, first come, first served; `Infinity` without a limit. Default: 0. */
  wait?: number;
  /** Who knows it holds the lock, too: at most 1 KiB. Default: a random one for each acquisition. */
  owner?: Key;
  /** Whether it is renewed in the background, at each third of the lease. Default: true. */
  renew?: boolean;
  /**
   * How long before its deadline the hold is lost, if no renewal has succeeded by then: the time to stop. Less than the lease.
   * Default: a tenth of the lease, of a session a tenth of its `delay`, and 1,000 at most.
   */
  stopBefore?: number;
  /**
   * The rank in the queues: each step counts as having come `lock-priority-ageing` earlier, a setting of the server. 0 to 9.
   * Default: 0.
   */
  priority?: number;
  /** Ends a wait: it leaves the queue, and `acquire` is rejected with the reason of the signal. */
  signal?: AbortSignal;
}

export interface LockOptions extends TakeOptions {
  /** With other readers. One of `shared`, `permits` and `reentrant` at most. */
  shared?: boolean;
  /** `[n, limit]`: n permits of a semaphore that has `limit`. */
  permits?: readonly [n: number, limit: number];
  /** The same lock object, or the same owner, may take it again; it is free after as many releases. */
  reentrant?: boolean;
  /** It ends with its connection, and `delay` after that, instead of with a lease. */
  session?: boolean;
  /** How long a session lasts without a connection. In this time it goes on over another one. Default: 0. */
  delay?: number;
  /** What those who ask for the holder see: at most 64 fields, 4 KiB in all. */
  meta?: Readonly<Record<string, string>>;
}

/** A lock that can be taken, also several times. */
export class Lock {
  private constructor();
  /**
   * Takes the lock, or waits for it. A request whose answer is lost, or that the server refuses for a moment, is repeated
   * until `wait` has passed, and three times at least, but not beyond the budget.
   *
   * Rejects with `LockHeld` when the wait has ended, `NotSupported` on a server without LOCK commands, `Refused`, `Deadlock`,
   * `Unreachable`, or the reason of `signal`.
   */
  acquire(): Promise<Held>;
  /**
   * Takes the lock, runs `work`, and releases the lock. Resolves to what `work` returns.
   *
   * Rejects as `acquire`, with what `work` throws, and with `LockLost` if the lock was lost meanwhile, also where `held.lost`
   * has aborted what `work` waited for.
   */
  using<T>(work: (held: Held) => T | PromiseLike<T>): Promise<T>;
  /** Who holds the (first) key; null if nobody does. */
  lockedBy(): Promise<Holder | null>;
}

/** A lock that is held by this thread, until `release()`. Renewals do not keep the process alive. A clone of it is an empty object. */
export class Held implements AsyncDisposable {
  private constructor();
  /** The key, as the server has it: of `anyOf` the one that was got, of `all` the first. */
  readonly key: string;
  /** The name under which the lock was taken. */
  readonly owner: Key;
  /** The fencing token: higher than that of every grant before, and below 2^53. Null from a server without LOCK commands. */
  readonly token: number | null;
  /** Whether it is no lock, because nobody has answered: see `onUnavailable`. It is never lost, and sends nothing. */
  readonly open: boolean;
  /**
   * Until when the lock is certainly held if nobody breaks it, in ms of `performance.now()`. Infinite for a session without
   * `delay`.
   */
  readonly deadline: number;
  /** Is aborted when the lock is lost, `stopBefore` ahead of its deadline at the latest; its `reason` is the LockLost. */
  readonly lost: AbortSignal;
  /** How long the lock is certainly held if nobody breaks it; 0 once it is lost or released. */
  remaining(): number;
  /** Throws LockLost once the lock is lost, also by its deadline. Put it before each step that needs the lock. */
  throwIfLost(): void;
  /** Starts the lease anew, with another length if one is given. Rejects with `LockLost`, `Unreachable` or `Refused`. */
  extend(lease?: number): Promise<void>;
  /** Leaves the lock held for so long, and renews it no more. Rejects as `extend`. */
  leave(rest: number): Promise<void>;
  /**
   * Hands the lock over to another owner: in the same instant it has the lock, and this hold is lost as `transferred`. An
   * owner that waits for this lock alone is granted it as it has asked. Another one has it for `lease`, and asks for it under
   * its name. Resolves to the new token; null if the session of that owner has ended in the same instant.
   *
   * The end of a block is silent about a lock that was handed over. Rejects with `LockLost`; with `Refused`, such as for
   * `NOLEASE`, and the lock is still held; with `NotSupported` on a server without LOCK commands; with a TypeError for several
   * keys. After `Unreachable` it may have been handed over, which the next renewal finds.
   */
  transferTo(owner: Key, lease?: number): Promise<number | null>;
  /**
   * Gives the lock back. False if it was not held any more. Rejects with `Unreachable` or `Refused`: then it ends with its
   * lease.
   */
  release(): Promise<boolean>;
  /**
   * First in a transaction that writes under the lock: has the database refuse it if a later holder has written. The database
   * has what `redlatch fence sql` prints.
   *
   * connection: a Client or PoolClient of `pg`, a connection of `mysql2` or `mysql2/promise`, a database of `better-sqlite3`
   * or `node:sqlite`. name: as all writers call it; default: the key.
   *
   * Rejects with `StaleToken`, after which the transaction must be rolled back; with `NotSupported` without a token; with
   * `Unreachable` for an open hold; with a TypeError for other connections, pools, and a connection outside of a transaction.
   */
  fenced(connection: object, name?: string): Promise<void>;
  /** The end of `await using`: releases. Throws LockLost if the lock was lost, unless one of its methods has said so. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Who holds a lock. What the server does not tell is null. */
export class Holder {
  private constructor();
  readonly key: string;
  /** The name under which it was taken; null for a value that names nobody. */
  readonly owner: string | null;
  /** The fencing token. */
  readonly token: number | null;
  /** When it was taken, as Unix time in ms. */
  readonly since: number | null;
  /** For how long it is held. */
  readonly held: number | null;
  /** What is left of its lease. */
  readonly left: number | null;
  readonly meta: Readonly<Record<string, string>>;
  /** `none`: the key is no lock. */
  readonly kind: "exclusive" | "shared" | "permits" | "reentrant" | "none";
  /** How many hold it together: this is the first of them. */
  readonly holders: number;
  /** How many permits it has, or how often it holds the lock. */
  readonly permits: number;
  /** How many wait for the lock. */
  readonly waiters: number | null;
  /** The address of its connection. */
  readonly address: string | null;
  /** A line for each thing that is known. */
  toString(): string;
}

export interface OnceOptions extends LockOptions {
  /**
   * How long the lock stays held after it was taken, so that a process whose clock is behind does not run the job once more.
   * Default: 0.
   */
  atLeast?: number;
}

/**
 * A job that a scheduler starts in several processes: it runs under the lock of the key, and resolves to undefined without
 * having run where another process has it.
 *
 * Rejects with what the job throws, `LockLost` if the lock was lost while it ran, and `Unreachable` or `Refused`.
 */
export function once<This, Args extends unknown[], T>(
  locks: Locks,
  key: Key,
  options: OnceOptions,
  job: (this: This, ...args: Args) => T | PromiseLike<T>,
): (this: This, ...args: Args) => Promise<T | undefined>;

/** The base of all others. */
export class LockError extends Error {}

/** Somebody else holds the lock, and the wait has ended. The text says who, why and since when, and how to break it. */
export class LockHeld extends LockError {
  private constructor();
  readonly key: string;
  /** Who holds it; null if it was released in the meantime. */
  readonly holder: Holder | null;
}

/** The lock is held no longer: somebody else may have it. */
export class LockLost extends LockError {
  private constructor();
  readonly key: string;
  readonly token: number | null;
  /**
   * As the server tells it, such as `broken` or `expired`. Or found here: `not-held`: the server does not know the lock.
   * `unrenewed`: no renewal has succeeded in time; the server may still count the lock as held. `released`: it was released.
   */
  readonly reason: LossReason;
  /** The REASON of LOCK.BREAK, if there is one. */
  readonly text: string | null;
}

/** The server is no redlatch, and plain Redis commands cannot do this. */
export class NotSupported extends LockError {
  private constructor();
  /** What the server lacks. */
  readonly what: string;
}

/** The server refuses the request. Its text; the error of the client library is the `cause`. */
export class Refused extends LockError {}

/** To wait would close a circle of owners, each waiting for a lock of the next. */
export class Deadlock extends Refused {}

/** The server cannot be asked. What was held is held until its lease ends; what was asked for may have been granted. */
export class Unreachable extends LockError {}

/** The database has seen a higher token: somebody else has had the lock since. The transaction must be rolled back. */
export class StaleToken extends LockError {}
