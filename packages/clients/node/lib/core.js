// What a lock client decides: which request comes next, and what a reply means.
//
// Knows   nothing of sockets and libraries. `io` carries out what is decided:
//         ask(words, key, timeout, { isBinary, waits, answer, signal }): the reply, within the timeout, with what it takes to
//         connect; throws ErrorReply, or another error if the connection fails; pause(ms, signal); of a session also
//         reconnect(timeout) and listen(ms).
// Time    milliseconds of `now()`.
// Names   of commands are in lower case: ioredis would make them so itself, several times for each request.

import { createHash } from "node:crypto";

import { Closed, Deadlock, ErrorReply, LockHeld, LockLost, NotSupported, Refused, Unreachable } from "./errors.js";
import { ANSWER_MAX, NOT_HELD, RELEASED, SESSION, TRANSFERRED, WAIT_MAX } from "./generated.js";
import { now, sameBytes } from "./hold.js";
import { mustEndBefore } from "./terms.js";
import { Holder, field, fields, holderOf, text, texts } from "./holder.js";

/** A renewal may take a sixth of the lease, and at least this. */
const RENEWAL_MIN = 100;
/** Tries of a request that fails, also where the wait has passed. */
const TRIES_MIN = 3;
/** The pauses between them, after the first one. */
const PAUSE_MIN = 50;
const PAUSE_MAX = 2_000;
/** The pauses between the requests of a wait for a lock of a plain server. */
const POLL_MIN = 20;
const POLL_MAX = 500;
/** The longest pause after a renewal that failed. */
export const RETRY_MAX = 1_000;
/** A session is looked at so often at least; its connection says by itself that it has ended. */
const BEAT_MAX = 10_000;

const IF_OURS = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end\n";
const RELEASE = script(`${IF_OURS}return redis.call('del', KEYS[1])\n`);
const EXTEND = script(`${IF_OURS}return redis.call('pexpire', KEYS[1], ARGV[2])\n`);

/**
 * What a call may take, counted from its start: connecting, tries and the pauses between them together. A request that the
 * server does not answer, or answers with an error that passes, is repeated until the wait has passed, and a few times at
 * least. All of it ends so many milliseconds after the wait.
 */
export class Budget {
  failures = 0;
  /** Whether any try was answered, also by an error. */
  wasAnswered = false;
  /** Until when the call waits for a lock. */
  until;
  #end;
  #tries;
  #signal;
  #pause = 0;

  constructor(ms, { wait = 0, tries = TRIES_MIN, signal } = {}) {
    this.until = now() + wait;
    this.#end = this.until + ms;
    this.#tries = tries;
    this.#signal = signal;
  }

  /** How long it is until the call must have ended. */
  left() {
    return Math.max(this.#end - now(), 0);
  }

  /** How long a request may take that waits so long for a lock. */
  limit(wait = 0) {
    return Math.min(wait + ANSWER_MAX, this.left());
  }

  /** The pause before the next try. Throws what the caller is told if there is none. */
  after(error) {
    this.failures += 1;
    if (isAnswer(error)) this.wasAnswered = true;
    if (isFinal(error) || this.#signal?.aborted) throw error;
    let rest = this.until - now();
    if (rest <= 0 && this.failures < this.#tries) rest = this.left();
    if (rest <= 0 || !passes(error)) throw refusal(error);
    // The last pause is what is left, so that the last try is at the end of the wait.
    const pause = Math.min(this.#pause, rest);
    this.#pause = Math.min(Math.max(this.#pause * 2, PAUSE_MIN), PAUSE_MAX);
    return pause;
  }
}

/** Takes a lock, waiting for it as long as the terms say. A request whose answer is lost is sent again for the same owner. */
export async function acquire(terms, server, io, budget) {
  for (;;) {
    try {
      if (server.isPlain && terms.lacking === null) {
        return await acquirePlainly(terms, budget, io, terms.hasOwnOwner || budget.failures > 0);
      }
      // A request that failed may have been carried out: another one would count twice.
      const again = terms.isReentrant && budget.failures > 0 ? await reentered(terms, server, io, budget) : null;
      return again ?? (await acquireNatively(terms, budget, io));
    } catch (error) {
      if (isUnknown(error)) {
        server.isPlain = true;
        budget.wasAnswered = true;
        if (terms.lacking !== null) throw new NotSupported(terms.lacking, { cause: error });
      } else {
        await io.pause(budget.after(error), terms.signal);
      }
    }
  }
}

/** What a call comes to that nobody has answered, if the program wants it. Throws the error if anybody has. */
export function openGrant(error, budget) {
  if (!(error instanceof Unreachable) || budget.wasAnswered) throw error;
  return { token: null, begun: Infinity, isPlain: false, session: null, whyOpen: error.message };
}

/** The answer to a request, which the budget of the call remembers. */
async function answered(asking, budget) {
  const answer = await asking;
  budget.wasAnswered = true;
  return answer;
}

async function acquireNatively(terms, budget, io) {
  const key = terms.keys[0];
  let session = null;
  if (terms.isSession) {
    await io.reconnect(budget.limit());
    session = await answered(io.ask(["lock.session", "ID"], key, budget.limit()), budget);
  }
  for (;;) {
    const sent = now();
    const wait = Math.min(Math.max(budget.until - sent, 0), WAIT_MAX);
    // The key that was got is named by its bytes.
    const how = { waits: wait > 0, isBinary: terms.isAny, signal: terms.signal };
    const answer = await answered(io.ask(terms.request(wait), key, budget.limit(wait), how), budget);
    const granted = grantOf(answer, sent, session, terms);
    if (granted) return granted;
    if (wait < WAIT_MAX) {
      throw new LockHeld(text(key), await holderOfRefused(terms.keys, fields(fields(answer).refused), io, budget));
    }
  }
}

/** What an answer grants, or null. A request that does not wait is answered with the token alone. */
function grantOf(answer, sent, session, terms) {
  if (answer !== null && !Array.isArray(answer)) return { token: number(answer), begun: sent, isPlain: false, session };
  const { token, locks: [name, only] = [], waited } = fields(answer);
  if (token === undefined && name === undefined) return null;
  const key = name && (terms.keys.find((each) => sameBytes(each, name)) ?? name);
  // The lease began when the wait had ended.
  const begun = Math.min(sent + Math.max(number(waited) - 1, 0), now());
  return { token: number(token ?? only), begun, isPlain: false, session, key };
}

async function reentered(terms, server, io, budget) {
  if ((await permitsOf(terms, io, budget)) <= server.timesHeld(terms)) return null;
  const sent = now();
  const words = ["lock.extend", terms.keys[0], terms.owner, "LEASE", String(terms.lease)];
  const token = field(await io.ask(words, terms.keys[0], budget.limit()), "token");
  return token === undefined ? null : { token: number(token), begun: sent, isPlain: false, session: null };
}

/** How often the owner holds the lock. */
async function permitsOf(terms, io, budget) {
  const asking = io.ask(["lock.who", terms.keys[0]], terms.keys[0], budget.limit(), { isBinary: true });
  const answer = fields(await answered(asking, budget));
  const holders = (answer.holders ?? []).map(fields).filter((each) => each.owner && sameBytes(each.owner, terms.owner));
  return holders.reduce((sum, each) => sum + each.permits, 0);
}

async function acquirePlainly(terms, budget, io, mayBeOurs) {
  const key = terms.keys[0];
  let pause = POLL_MIN;
  for (let isFirst = true; ; isFirst = false) {
    let sent = now();
    const asking = io.ask(["set", key, terms.owner, "NX", "PX", String(terms.lease)], key, budget.limit());
    let isSet = await answered(asking, budget);
    if (!isSet && mayBeOurs && isFirst) {
      sent = now();
      isSet = await extendPlainly(key, terms.owner, terms.lease, io, budget);
    }
    if (isSet) return { token: null, begun: sent, isPlain: true, session: null };
    const left = budget.until - now();
    if (left <= 0) throw new LockHeld(text(key), await holderPlainly(key, io, budget));
    // A part of the pause is random, so that those who wait do not ask in step.
    await io.pause(Math.min(left, pause * (0.5 + Math.random() / 2)), terms.signal);
    pause = Math.min(pause * 2, POLL_MAX);
  }
}

/** Starts the lease anew, with another length if one is given. The hold is lost if the server does not know it. */
export async function extend(hold, io, budget, lease = hold.lease) {
  const sent = now();
  for (const key of hold.terms.keys) {
    if (hold.whyLost() !== null) return undefined;
    if (!(await extendKey(hold, key, lease, io, budget))) return hold.lose(NOT_HELD);
  }
  return hold.renewed(sent, lease);
}

async function extendKey(hold, key, lease, io, budget) {
  const { owner } = hold.terms;
  if (hold.isPlain) return extendPlainly(key, owner, lease, io, budget);
  const term = hold.terms.isSession ? [] : ["LEASE", String(lease)];
  const words = ["lock.extend", key, owner, ...term, "TOKEN", String(hold.token)];
  const answer = await io.ask(words, key, budget.limit(), { answer: Math.max(hold.lease / 6, RENEWAL_MIN) });
  // The owner may hold it anew.
  return Number(field(answer, "token")) === hold.token;
}

/** Like `extend`, for a caller that waits for it. */
export async function extendNow(hold, io, budget, lease) {
  mustHaveLease(hold);
  if (lease !== undefined && !hold.isLeft) mustEndBefore(hold.terms, lease);
  for (;;) {
    throwIfOver(hold);
    try {
      await extend(hold, io, budget, lease);
      return throwIfLost(hold);
    } catch (error) {
      await io.pause(budget.after(error));
    }
  }
}

function mustHaveLease(hold) {
  if (hold.terms.isSession) throw new TypeError("a session has no lease: it ends with its connection");
}

function throwIfOver(hold) {
  if (hold.isReleased) throw new LockLost(hold.key, hold.token, RELEASED);
  throwIfLost(hold);
}

function throwIfLost(hold) {
  const loss = hold.loss();
  if (loss) throw loss;
}

/** Leaves the lock held for so long; it is renewed no more. */
export async function leave(hold, io, budget, rest) {
  mustHaveLease(hold);
  hold.renews = false;
  hold.isLeft = true;
  hold.next = Infinity;
  await extendNow(hold, io, budget, rest);
  hold.isReleased = true;
}

/**
 * Hands the lock over. It is asked once: after a lost answer the next renewal finds whether it is still held. Resolves to the
 * new token; null if the session of the new owner has ended in the same instant.
 */
export async function transfer(hold, [owner, lease], io, budget) {
  throwIfOver(hold);
  const [key, ...others] = hold.terms.keys;
  if (others.length > 0) throw new TypeError("only the lock of one key can be handed over");
  if (hold.isPlain) throw new NotSupported("a hand-over");
  const words = ["lock.transfer", key, hold.terms.owner, "TO", owner, "TOKEN", String(hold.token)];
  if (lease !== null) words.push("LEASE", String(lease));
  let answer;
  try {
    answer = await io.ask(words, key, budget.limit());
  } catch (error) {
    if (!(error instanceof ErrorReply && error.message.startsWith("NOTHELD"))) throw refusal(error);
    hold.lose(NOT_HELD);
    throw hold.loss();
  }
  hold.isHandedOver = true;
  hold.lose(TRANSFERRED);
  const token = field(answer, "token");
  return token === undefined ? null : number(token);
}

/** One renewal in the background. It never throws: what fails is tried again, until the deadline. */
export async function renew(hold, io) {
  hold.next = Infinity;
  try {
    await extend(hold, io, budgetOfRenewal(hold));
  } catch {
    // The next try is soon.
  }
  if (hold.next === Infinity && hold.renews) hold.next = now() + Math.min(hold.lease / 30, RETRY_MAX);
}

/** What comes after the hold is lost is of no use. */
function budgetOfRenewal(hold) {
  return new Budget(Math.min(ANSWER_MAX, hold.stopsAt - now()));
}

/** Keeps the connection of a session while the lock is held, and attaches the session to another one when it ends. */
export async function keepSession(hold, io) {
  hold.next = Math.min(hold.next, now() + BEAT_MAX);
  while (hold.isKept && !hold.isOver) {
    try {
      const left = hold.next - now();
      if (left > 0) {
        await io.listen(left);
      } else {
        await extend(hold, io, budgetOfRenewal(hold));
        hold.next = Math.min(hold.next, now() + BEAT_MAX);
      }
    } catch (error) {
      // A refusal that passes leaves the connection as it is.
      if (error instanceof ErrorReply && passes(error)) await io.pause(PAUSE_MIN);
      else await attach(hold, io);
    }
  }
}

async function attach(hold, io) {
  while (hold.isKept && !hold.isOver) {
    if (hold.lease === Infinity) return hold.lose(SESSION);
    try {
      const budget = budgetOfRenewal(hold);
      await io.reconnect(budget.limit());
      await io.ask(["lock.session", "ATTACH", hold.session], hold.terms.keys[0], budget.limit());
      hold.next = now();
      return undefined;
    } catch (error) {
      if (!passes(error)) return hold.isKept ? hold.lose(SESSION) : undefined;
      await io.pause(PAUSE_MIN);
    }
  }
  return undefined;
}

/** Releases every key. False if not all of them were held. A hold that is known to be lost is tried once: it ends by itself. */
export function release(hold, io, ms) {
  const budget = new Budget(ms, { tries: hold.whyLost() === null ? TRIES_MIN : 1 });
  const { keys } = hold.terms;
  return keys.length === 1 ? releaseKey(hold, keys[0], io, budget) : releaseKeys(hold, io, budget);
}

async function releaseKeys(hold, io, budget) {
  let wasHeld = true;
  for (const key of hold.terms.keys) {
    wasHeld = (await releaseKey(hold, key, io, budget)) && wasHeld;
    hold.mayBeReleased = true;
  }
  return wasHeld;
}

async function releaseKey(hold, key, io, budget) {
  const { failures } = budget;
  for (;;) {
    try {
      const isRepeated = budget.failures > failures;
      if (isRepeated && (await isReleasedOnce(hold, io, budget))) return true;
      const answer = await (hold.isPlain
        ? run(RELEASE, key, [hold.terms.owner], io, budget)
        : io.ask(["lock.release", key, ...hold.named], key, budget.limit()));
      // A request whose answer was lost may have released it.
      return number(answer) === 1 || (isRepeated && hold.whyLost() === null);
    } catch (error) {
      if (!(error instanceof ErrorReply)) hold.mayBeReleased = true;
      await io.pause(budget.after(error));
    }
  }
}

/** Of a reentrant lock, of which each release counts: whether a request that failed has released it. */
async function isReleasedOnce({ terms, server }, io, budget) {
  return terms.isReentrant && (await permitsOf(terms, io, budget)) <= server.timesHeld(terms);
}

/** Releases what an acquisition that was aborted may have been granted. Of others, nothing is known to be this owner's. */
export async function giveUp(terms, server, io, budget) {
  if (!terms.hasNewOwners) return;
  for (const key of terms.keys) {
    try {
      if (server.isPlain) await run(RELEASE, key, [terms.owner], io, budget);
      else await io.ask(["lock.release", key, terms.owner], key, budget.limit());
    } catch {
      // It ends with its lease.
    }
  }
}

/** Who holds a key; null if there is no such key. */
export async function lockedBy(key, server, io, budget) {
  for (;;) {
    try {
      if (server.isPlain) return await holderPlainly(key, io, budget);
      return holderOf(await io.ask(["lock.who", key], key, budget.limit(), { isBinary: true }));
    } catch (error) {
      if (isUnknown(error)) server.isPlain = true;
      else await io.pause(budget.after(error));
    }
  }
}

/** Who holds what was refused: what LOCK.WHO says, or else the refusal itself. */
async function holderOfRefused(keys, refused, io, budget) {
  try {
    for (const key of keys) {
      const found = holderOf(await io.ask(["lock.who", key], key, budget.limit(), { isBinary: true }));
      if (found) return found;
    }
  } catch {
    // A user may lack the right.
  }
  const { holder = null, token, lease: left, meta } = refused;
  return new Holder(text(keys[0]), holder, { token, left, meta: texts(meta) });
}

async function holderPlainly(key, io, budget) {
  try {
    const owner = await io.ask(["get", key], key, budget.limit(), { isBinary: true });
    if (owner === null) return null;
    const left = number(await io.ask(["pttl", key], key, budget.limit()));
    return new Holder(text(key), text(owner), { left: left >= 0 ? left : null });
  } catch (error) {
    if (!(error instanceof ErrorReply)) throw error;
    return new Holder(text(key), null, { kind: "none" });
  }
}

async function extendPlainly(key, owner, lease, io, budget) {
  try {
    return (await run(EXTEND, key, [owner, String(lease)], io, budget)) === 1;
  } catch (error) {
    if (error instanceof ErrorReply && error.message.includes("WRONGTYPE")) return false;
    throw error;
  }
}

async function run({ source, digest }, key, words, io, budget) {
  try {
    return number(await io.ask(["evalsha", digest, "1", key, ...words], key, budget.limit()));
  } catch (error) {
    if (!(error instanceof ErrorReply && error.message.startsWith("NOSCRIPT"))) throw error;
    return number(await io.ask(["eval", source, "1", key, ...words], key, budget.limit()));
  }
}

function script(source) {
  return { source, digest: createHash("sha1").update(source).digest("hex") };
}

/**
 * A number of the server, which a client may be set up to read as a text. Tokens fit: they count grants, or go on from the
 * microseconds of the clock, which reach 2^53 in the year 2255.
 */
function number(value) {
  const read = Number(value);
  if (!Number.isSafeInteger(read)) throw new RangeError(`the server has answered ${value}, which is no safe integer`);
  return read;
}

/** Whether an error is one that was made here, for the caller. */
function isFinal(error) {
  return [LockHeld, LockLost, NotSupported, RangeError].some((kind) => error instanceof kind);
}

/** Whether the server has no LOCK commands. */
function isUnknown(error) {
  return error instanceof ErrorReply && /^ERR unknown command/i.test(error.message);
}

const PASSING = new Set(
  "ASK BUSY CLUSTERDOWN LOADING MASTERDOWN MISCONF MOVED OOM QUARANTINE READONLY SHUTDOWN TRYAGAIN UNBLOCKED".split(" "),
);

/** Whether the same request may be served in a moment. */
function passes(error) {
  if (!(error instanceof ErrorReply)) return !(error instanceof Closed);
  return PASSING.has(error.message.split(" ", 1)[0]) || error.message.startsWith("ERR max number of clients");
}

/** Whether a server has said so. Some libraries have it as the cause of an error of their own. */
function isAnswer(error) {
  return error instanceof ErrorReply || error?.cause instanceof ErrorReply;
}

function refusal(error) {
  const said = error.message || error.code || error.name;
  if (!(error instanceof ErrorReply)) return new Unreachable(said, { cause: error });
  return new (said.startsWith("DEADLOCK") ? Deadlock : Refused)(said, { cause: error });
}
