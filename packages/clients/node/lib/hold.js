// What is known of a lock that was granted, and of the server that granted it. No requests are made here.
//
// Time    performance.now(), in milliseconds: a monotonic clock. A lease counts from the moment its request was sent, so a
//         deadline here lies before the one of the server, whatever the network did.

import { LockLost, shown } from "./errors.js";
import { UNRENEWED } from "./generated.js";
import { text } from "./holder.js";

export const LOST_CHANNEL = "__lock__:";

export const now = () => performance.now();

export class Hold {
  #terms;
  #server;
  #reason = null;
  #text = null;

  /** `grant` is what `acquire` resolves to. */
  constructor(terms, grant, server) {
    this.#terms = grant.key === undefined ? terms : terms.only(grant.key);
    this.#server = server;
    this.token = grant.token;
    this.isPlain = grant.isPlain;
    this.session = grant.session;
    /** Why it is no lock, if nobody has answered and the program goes on without one; else null. */
    this.whyOpen = grant.whyOpen ?? null;
    this.lease = this.whyOpen === null ? terms.held : Infinity;
    this.renews = terms.renews && this.whyOpen === null;
    this.isReleased = false;
    /** The program has given it to another owner. It is lost, too. */
    this.isHandedOver = false;
    /** False once its session is not to be kept any more. */
    this.isKept = true;
    /** A release that has failed may have given it back: one of its keys was, or an answer was lost. */
    this.mayBeReleased = false;
    /** Until when the lock is certainly held if nobody breaks it. */
    this.deadline = grant.begun + this.lease;
    /** When it is lost if no renewal has succeeded by then. */
    this.stopsAt = this.deadline - terms.margin(this.lease);
    /** Its program works under it no more, so it needs no time to stop. */
    this.isLeft = false;
    /** When the next renewal is due. */
    this.next = this.#renewalAfter(grant.begun);
    /** Called when the lock is lost: for the program. */
    this.onLost = null;
    /** Of a session: has it looked at now. */
    this.wake = null;
    /** The release and the extensions that are on their way. */
    this.releasing = null;
    this.extending = null;
  }

  get terms() {
    return this.#terms;
  }

  get isOpen() {
    return this.whyOpen !== null;
  }

  get server() {
    return this.#server;
  }

  get key() {
    return text(this.#terms.keys[0]);
  }

  /** The words that name it in a request: another process may have the lock under the same owner. */
  get named() {
    return [this.#terms.owner, "TOKEN", String(this.token)];
  }

  get isOver() {
    return this.isReleased || this.whyLost() !== null;
  }

  remaining() {
    return this.isOver ? 0 : Math.max(0, this.deadline - now());
  }

  /** The reason of the loss, or null. The deadline counts here, whether or not a timer has noticed it. */
  whyLost() {
    if (this.#reason === null && !this.isReleased && now() >= this.stopsAt) this.lose(UNRENEWED);
    return this.#reason;
  }

  /** The error for a lock that is lost, or null. */
  loss() {
    const reason = this.whyLost();
    return reason === null ? null : new LockLost(this.key, this.token, reason, this.#text);
  }

  lose(reason, why = null) {
    if (this.#reason !== null || this.isReleased) return;
    this.#reason = reason;
    this.#text = why;
    this.#server.onLost(this);
    this.onLost?.();
  }

  /** What has been told as lost stays lost, whatever the server says later. */
  renewed(sent, lease) {
    if (this.whyLost() !== null) return;
    // An earlier request may still be on its way, with a shorter lease, which the next one then puts right in time.
    const shorter = Math.min(lease, this.lease);
    this.lease = lease;
    this.deadline = sent + lease;
    this.stopsAt = this.deadline - (this.isLeft ? 0 : this.#terms.margin(lease));
    this.next = this.renews ? Math.min(this.#renewalAfter(sent), sent + shorter / 3) : Infinity;
  }

  /** When it is renewed after a request that began its lease: in time also if it is lost early. */
  #renewalAfter(sent) {
    return this.renews ? Math.min(sent + this.lease / 3, (sent + this.stopsAt) / 2) : Infinity;
  }
}

/** What a client knows of its server, and which locks it holds there. */
export class Server {
  /** It has no LOCK commands. */
  isPlain = false;
  holds = new Set();
  /** Called for each hold that is lost. */
  onLost = () => {};

  /** A message of the channel `__lock__:key`, both as bytes: `lost <token> <reason> [text]`. */
  isTold(channel, data) {
    const [, token, reason, why] = /^lost (\d+) (\S+)(?: (.*))?$/s.exec(text(data)) ?? [];
    if (reason === undefined) return;
    const key = channel.subarray(LOST_CHANNEL.length);
    for (const hold of [...this.holds]) {
      if (String(hold.token) === token && hold.terms.keys.some((each) => key.equals(Buffer.from(each)))) {
        hold.lose(reason, why ? shown(why) : null);
      }
    }
  }

  /** Messages may have been missed: each lock is renewed now, which shows whether it is still held. */
  renewAll() {
    for (const hold of this.holds) {
      if (hold.next < Infinity) hold.next = Math.min(hold.next, now());
      hold.wake?.();
    }
  }

  /** How often this client holds a reentrant lock. */
  timesHeld(terms) {
    const isSame = (hold) => sameBytes(hold.terms.owner, terms.owner) && sameBytes(hold.terms.keys[0], terms.keys[0]);
    return [...this.holds].filter(isSame).length;
  }
}

/** Whether two words, texts or bytes, are the same on the wire. */
export function sameBytes(one, other) {
  return one === other || Buffer.from(one).equals(Buffer.from(other));
}
