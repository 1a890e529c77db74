// What a lock is taken for: checked once, when the lock is made. Times are in milliseconds.

import { randomUUID } from "node:crypto";

import {
  BUDGET_DEFAULT,
  KEYS_MAX,
  LEASE_DEFAULT,
  LEASE_MAX,
  META_BYTES_MAX,
  META_FIELDS_MAX,
  OWNER_BYTES_MAX,
  PERMITS_MAX,
  PRIORITY_MAX,
} from "./generated.js";
import { sameBytes } from "./hold.js";

const DEFAULTS = {
  lease: LEASE_DEFAULT,
  wait: 0,
  shared: false,
  permits: undefined,
  reentrant: false,
  session: false,
  delay: 0,
  meta: undefined,
  owner: undefined,
  renew: true,
  stopBefore: undefined,
  priority: 0,
  signal: undefined,
};
const OPTIONS_OF_SEVERAL = ["lease", "wait", "owner", "renew", "stopBefore", "priority", "signal"];
/** The longest `stopBefore` that is not chosen. */
const STOP_BEFORE_MAX = 1_000;

/** What a lock is taken for. Made by `termsOf`, which checks it. */
export class Terms {
  constructor(of, owner) {
    this.keys = of.keys;
    this.owner = owner;
    this.hasOwnOwner = of.hasOwnOwner;
    this.lease = of.lease;
    this.wait = of.wait;
    this.kind = of.kind;
    this.isAny = of.isAny;
    this.priority = of.priority;
    this.meta = of.meta;
    this.delay = of.delay;
    this.renews = of.renews;
    this.stopBefore = of.stopBefore;
    this.signal = of.signal;
  }

  /** For how long the lock is certainly held after a sign of life. Infinite for a session that ends with its connection. */
  get held() {
    return this.delay === null ? this.lease : this.delay || Infinity;
  }

  /** How long before its deadline a hold with such a lease is lost. */
  margin(lease) {
    return this.stopBefore ?? Math.min(lease / 10, STOP_BEFORE_MAX);
  }

  get isReentrant() {
    return this.kind[0] === "REENTRANT";
  }

  get isSession() {
    return this.delay !== null;
  }

  /** What a server without LOCK commands cannot do of it, or null. */
  get lacking() {
    if (this.keys.length > 1) return this.isAny ? "one of several keys" : "several keys at once";
    if (this.kind.length > 0) return `${this.kind[0].toLowerCase()} locks`;
    if (this.isSession) return "sessions";
    if (this.priority > 0) return "a priority";
    return this.meta.length > 0 ? "meta" : null;
  }

  /** Whether each acquisition has an owner of its own: no other is granted a lock under it. */
  get hasNewOwners() {
    return !this.hasOwnOwner && !this.isReentrant;
  }

  /** The terms of one acquisition. */
  anew() {
    return this.hasNewOwners ? new Terms(this, randomUUID()) : this;
  }

  /** The terms of the one key of several that was got. */
  only(key) {
    return new Terms({ ...this, keys: [key], kind: [], isAny: false }, this.owner);
  }

  /** The words of LOCK.ACQUIRE, or of LOCK.MACQUIRE for several keys. */
  request(wait) {
    const words = this.keys.length > 1 ? ["lock.macquire", String(this.keys.length)] : ["lock.acquire"];
    words.push(...this.keys, this.owner);
    if (this.isSession) words.push("SESSION", "DELAY", String(this.delay));
    else words.push("LEASE", String(this.lease));
    if (wait > 0) words.push("WAIT", String(Math.ceil(wait)));
    else if (!this.isAny) words.push("JUSTTOKEN");
    words.push("WHY", ...this.kind);
    if (this.priority > 0) words.push("PRIORITY", String(this.priority));
    if (this.meta.length > 0) words.push("META", ...this.meta);
    return words;
  }
}

/**
 * Throws a RangeError or TypeError for what no server would grant. `prefix` stands before each key. `kind`: the words that
 * say how several keys are taken.
 */
export function termsOf(keys, options, prefix = "", { kind, isAny = false } = {}) {
  const all = checked(options, Object.keys(DEFAULTS));
  const kinds = kindsOf(all);
  if (kinds.length > 1) throw new RangeError("a lock is one of shared, permits and reentrant");
  if (all.session ? options.lease !== undefined : all.delay) {
    throw new RangeError("a session has no lease: it ends with its connection, and `delay` is of sessions only");
  }
  const of = {
    keys: keys.map((key) => prefixed(prefix, key)),
    hasOwnOwner: all.owner !== undefined && all.owner !== null,
    lease: duration("lease", all.lease, 1, LEASE_MAX),
    wait: atLeast("wait", all.wait, 0),
    kind: kind ?? kinds[0] ?? [],
    isAny,
    priority: priorityOf(all.priority),
    meta: metaOf(all.meta ?? {}),
    delay: all.session ? duration("delay", all.delay, 0, LEASE_MAX) : null,
    renews: all.renew,
    stopBefore: all.stopBefore === undefined ? null : atLeast("stopBefore", all.stopBefore, 0),
    signal: all.signal,
  };
  const terms = new Terms(of, ownerOf(all.owner) ?? randomUUID());
  mustEndBefore(terms, terms.held);
  return terms;
}

/** Throws a RangeError for a lease that would be lost as soon as it begins. */
export function mustEndBefore(terms, lease) {
  if (!(terms.margin(lease) < lease)) throw new RangeError(`stopBefore ${terms.margin(lease)}: less than the lease, ${lease}`);
}

/** Of several keys: all or none, or one of them. The server counts a key once, too. Of one key it is the lock of that key. */
export function termsOfSeveral(keys, { modes = {}, ...options }, prefix, wantsOne) {
  if (typeof keys === "string" || Buffer.isBuffer(keys)) throw new TypeError("keys: a list of them");
  const named = new Map([...keys].map((key) => [idOf(key), key]));
  if (named.size === 0) throw new RangeError("a lock needs a key");
  if (named.size > KEYS_MAX) throw new RangeError(`keys: ${named.size}, at most ${KEYS_MAX}`);
  const kinds = new Map([...named.keys()].map((id) => [id, []]));
  for (const [key, mode] of Object.entries(modes)) {
    if (!kinds.has(idOf(key))) throw new RangeError(`modes: ${key} is none of the keys`);
    kinds.set(idOf(key), modeOf(key, mode));
  }
  const isAny = wantsOne && named.size > 1;
  const numbered = (kind, at) => (kind.length > 0 ? ["MODE", String(at + 1), ...kind] : []);
  const several = [...(isAny ? ["ANY", "1"] : []), ...[...kinds.values()].flatMap(numbered)];
  const kind = named.size > 1 ? several : kinds.values().next().value;
  return termsOf([...named.values()], checked(options, OPTIONS_OF_SEVERAL), prefix, { kind, isAny });
}

/** Keys are the same if their bytes are. */
function idOf(key) {
  return Buffer.from(word("key", key)).toString("hex");
}

function modeOf(key, mode) {
  if (mode === "shared") return ["SHARED"];
  if (Array.isArray(mode)) return permitsOf(mode);
  throw new RangeError(`modes: ${key} is shared, or permits [n, limit]`);
}

function checked(options, names) {
  const unknown = Object.keys(options).filter((name) => !names.includes(name));
  if (unknown.length > 0) throw new TypeError(`a lock has no option ${unknown.join(", ")}`);
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  return { ...DEFAULTS, ...Object.fromEntries(given.filter(([name]) => name in DEFAULTS)) };
}

function kindsOf({ shared, reentrant, permits }) {
  const kinds = [];
  if (shared) kinds.push(["SHARED"]);
  if (reentrant) kinds.push(["REENTRANT"]);
  if (permits !== undefined && permits !== null) kinds.push(permitsOf(permits));
  return kinds;
}

function permitsOf([count, limit]) {
  if (!Number.isSafeInteger(count) || !Number.isSafeInteger(limit) || count < 1 || count > limit || limit > PERMITS_MAX) {
    const numbers = `whole numbers, of which the first is 1 to the second, which is ${PERMITS_MAX} at most`;
    throw new RangeError(`permits [${count}, ${limit}]: ${numbers}`);
  }
  return ["PERMITS", String(count), "OF", String(limit)];
}

function priorityOf(priority) {
  if (!Number.isSafeInteger(priority) || priority < 0 || priority > PRIORITY_MAX) {
    throw new RangeError(`priority ${priority}: a whole number of 0 to ${PRIORITY_MAX}`);
  }
  return priority;
}

function metaOf(meta) {
  const words = Object.entries(meta).flatMap(([name, value]) => [name, String(value)]);
  const size = words.reduce((sum, word) => sum + Buffer.byteLength(word), 0);
  if (size > META_BYTES_MAX || words.length > 2 * META_FIELDS_MAX) {
    const limits = `at most ${META_BYTES_MAX} in ${META_FIELDS_MAX}`;
    throw new RangeError(`meta: ${size} bytes in ${words.length / 2} fields, ${limits}`);
  }
  return words;
}

/** Who is handed a lock of `from`: another owner, and for how long it has the lock if it does not wait for it. */
export function successorOf(from, owner, lease) {
  if (sameBytes(word("owner", ownerOf(owner)), from)) throw new RangeError("owner: a lock is handed over to another one");
  return [owner, lease === undefined ? null : duration("lease", lease, 1, LEASE_MAX)];
}

function ownerOf(owner) {
  if (owner === undefined || owner === null) return null;
  const size = Buffer.byteLength(word("owner", owner));
  if (size > OWNER_BYTES_MAX) throw new RangeError(`owner: ${size} bytes, at most ${OWNER_BYTES_MAX}`);
  return owner;
}

function prefixed(prefix, key) {
  word("key", key);
  if (!prefix) return key;
  return typeof key === "string" ? prefix + key : Buffer.concat([Buffer.from(prefix), key]);
}

function word(name, value) {
  if (typeof value !== "string" && !Buffer.isBuffer(value)) throw new TypeError(`${name}: a string or a Buffer`);
  if (value.length === 0) throw new RangeError(`${name}: not empty`);
  return value;
}

/** Whole milliseconds, as the server counts them. */
export function duration(name, ms, least, most = Infinity) {
  const rounded = Math.round(atLeast(name, ms, least));
  if (rounded > most) throw new RangeError(`${name} ${ms}: at most ${most} ms`);
  return rounded;
}

/** The settings of `Locks`: the budget of each call, and whether one that nobody answers returns an open hold. */
export function settingsOf({ budget = BUDGET_DEFAULT, onUnavailable = "closed", ...others }) {
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) throw new TypeError(`locks have no option ${unknown}`);
  if (!["closed", "open"].includes(onUnavailable)) throw new RangeError(`onUnavailable ${onUnavailable}: closed or open`);
  return { budget: duration("budget", budget, 1, LEASE_MAX), opens: onUnavailable === "open" };
}

function atLeast(name, ms, least) {
  if (typeof ms !== "number" || !(ms >= least)) throw new RangeError(`${name} ${ms}: milliseconds, at least ${least}`);
  return ms;
}
