// What programs call: `Locks` over their client, a `Lock` that can be taken, and one that is `Held`.

import { LockError, LockLost, Unreachable, shown } from "./errors.js";
import { fence } from "./fence.js";
import { NOT_HELD } from "./generated.js";
import { IoredisDriver } from "./ioredis.js";
import { Keeper, warn } from "./keeper.js";
import { NodeRedisDriver } from "./node-redis.js";
import { duration, settingsOf, successorOf, termsOf, termsOfSeveral } from "./terms.js";

export class Locks {
  #keeper;

  constructor(client, options = {}) {
    this.#keeper = new Keeper(driverOf(client), settingsOf(options));
  }

  get opened() {
    return this.#keeper.opened;
  }

  lock(key, options = {}) {
    return new Lock(this.#keeper, termsOf([key], options, this.#keeper.prefix));
  }

  all(keys, options = {}) {
    return new Lock(this.#keeper, termsOfSeveral(keys, options, this.#keeper.prefix, false));
  }

  anyOf(keys, options = {}) {
    return new Lock(this.#keeper, termsOfSeveral(keys, options, this.#keeper.prefix, true));
  }

  lockedBy(key) {
    return this.lock(key).lockedBy();
  }

  close() {
    return this.#keeper.close();
  }

  [Symbol.asyncDispose]() {
    return this.close();
  }
}

function driverOf(client) {
  // ioredis has a `sendCommand`, too.
  if (IoredisDriver.isFor(client)) return new IoredisDriver(client);
  if (NodeRedisDriver.isFor(client)) return new NodeRedisDriver(client);
  throw new TypeError("no client of ioredis (Redis, Cluster) or node-redis (createClient, createCluster, createSentinel)");
}

export class Lock {
  #keeper;
  #terms;

  constructor(keeper, terms) {
    this.#keeper = keeper;
    this.#terms = terms;
  }

  acquire() {
    return this.#keeper.acquire(this.#terms.anew()).then((hold) => new Held(this.#keeper, hold));
  }

  async using(work) {
    const held = await this.acquire();
    let result;
    try {
      result = await work(held);
    } catch (error) {
      const loss = held[END]();
      await held[RELEASE]();
      // What `held.lost` has aborted has failed because of the loss.
      throw loss && error?.name === "AbortError" ? Object.assign(loss, { cause: error }) : error;
    }
    const loss = await held[RELEASE]();
    if (loss) throw loss;
    return result;
  }

  lockedBy() {
    return this.#keeper.lockedBy(this.#terms.keys[0]);
  }
}

const END = Symbol("the error for a lock that is lost");
const RELEASE = Symbol("the release at the end of a block");

export class Held {
  #keeper;
  #hold;
  #lost = null;
  #loss = null;
  #isToldOfLoss = false;

  constructor(keeper, hold) {
    this.#keeper = keeper;
    this.#hold = hold;
  }

  get key() {
    return this.#hold.key;
  }

  get owner() {
    return this.#hold.terms.owner;
  }

  get token() {
    return this.#hold.token;
  }

  get open() {
    return this.#hold.isOpen;
  }

  get deadline() {
    return this.#hold.deadline;
  }

  get lost() {
    // It is made when it is asked for: few locks are lost.
    if (!this.#lost) {
      this.#lost = new AbortController();
      this.#hold.onLost = () => this.#lost.abort(this[END]());
      if (this[END]()) this.#lost.abort(this[END]());
    }
    // Where no timer has run since the deadline, this finds the loss.
    this.#hold.whyLost();
    return this.#lost.signal;
  }

  remaining() {
    return this.#hold.remaining();
  }

  throwIfLost() {
    const loss = this[END]();
    if (!loss) return;
    this.#isToldOfLoss = true;
    throw loss;
  }

  async extend(lease) {
    const length = lease === undefined ? undefined : duration("lease", lease, 1);
    await this.#tells(this.#keeper.extend(this.#hold, length));
  }

  async leave(rest) {
    await this.#tells(this.#keeper.leave(this.#hold, Math.max(duration("rest", rest, 0), 1)));
  }

  async transferTo(owner, lease) {
    const successor = successorOf(this.owner, owner, lease);
    if (this.open) throw new Unreachable(`${shown(this.key)} is not locked: ${this.#hold.whyOpen}`);
    return this.#tells(this.#keeper.transfer(this.#hold, successor));
  }

  release() {
    return this.#keeper.release(this.#hold);
  }

  async fenced(connection, name = this.key) {
    if (this.open) throw new Unreachable(`${shown(this.key)} is not locked: ${this.#hold.whyOpen}`);
    await fence(connection, name, this.token);
  }

  async [Symbol.asyncDispose]() {
    const loss = await this[RELEASE]();
    if (loss && !this.#isToldOfLoss) throw loss;
  }

  /** One error for one loss, however often it is asked for. */
  [END]() {
    return (this.#loss ??= this.#hold.loss());
  }

  /** Releases, unless that is done, and warns if it cannot. Returns the loss; one that was handed over is none. */
  async [RELEASE]() {
    if (this.#hold.isHandedOver) return null;
    const told = this[END]();
    if (this.#hold.isReleased) return told;
    try {
      const wasHeld = (await this.release()) || this.open;
      return told ?? (wasHeld ? null : new LockLost(this.key, this.token, NOT_HELD));
    } catch (error) {
      if (!(error instanceof LockError)) throw error;
      warn(`${this.key} is not released, and ends with its lease: ${error.message}`);
      return told;
    }
  }

  async #tells(call) {
    try {
      return await call;
    } catch (error) {
      this.#isToldOfLoss ||= error instanceof LockLost;
      throw error;
    }
  }
}
