// Takes locks and keeps them: renewals, sessions and the subscription to losses go on in the background.
//
// Owns    one timer for all locks. Neither it nor a held lock keeps the process alive.
// Knows   `core`, which decides; `connections`, which carry it out.

import { Connections } from "./connections.js";
import {
  Budget, acquire, extendNow, giveUp, keepSession, leave, lockedBy, openGrant, release, renew, transfer,
} from "./core.js";
import { Unreachable, shown } from "./errors.js";
import { NOT_HELD, SESSION } from "./generated.js";
import { Hold, Server, now } from "./hold.js";
import { Timer, inTime } from "./timer.js";

export class Keeper {
  /** How many open holds were returned. */
  opened = 0;
  #budget;
  #opens;
  #connections;
  #server = new Server();
  #sessions = new Set();
  #timer = new Timer(() => this.#wake());
  #hasWarned = false;
  #told;

  /** `budget`: how long a call may take beside its wait. `opens`: one that nobody answers returns an open hold. */
  constructor(driver, { budget, opens }) {
    this.#budget = budget;
    this.#opens = opens;
    this.#connections = new Connections(driver);
    this.#server.onLost = (hold) => this.#forget(hold);
    this.#told = {
      onMessage: (channel, data) => this.#server.isTold(channel, data),
      onSubscribed: () => {
        this.#server.renewAll();
        this.#wake();
      },
      onRefused: (error) => this.#warnOnce(error),
      isWanted: () => this.#server.holds.size > 0,
    };
  }

  get prefix() {
    return this.#connections.prefix;
  }

  async acquire(terms) {
    const { signal } = terms;
    signal?.throwIfAborted();
    if (this.#connections.isClosed) throw new Error("these locks are closed");
    const session = terms.isSession ? this.#connections.session(terms.keys[0]) : null;
    const budget = new Budget(this.#budget, terms);
    let hold = null;
    try {
      hold = new Hold(terms, await acquire(terms, this.#server, session ?? this.#connections, budget), this.#server);
      signal?.throwIfAborted();
    } catch (error) {
      session?.close();
      if (signal?.aborted) {
        this.#giveUp(terms, hold);
        throw signal.reason;
      }
      if (!this.#opens || this.#connections.isClosed) throw error;
      return this.#open(terms, openGrant(error, budget));
    }
    this.#keep(hold, session);
    return hold;
  }

  #open(terms, grant) {
    const hold = new Hold(terms, grant, this.#server);
    this.opened += 1;
    const text = `${shown(hold.key)} is not locked, and the program goes on without it: ${grant.whyOpen}`;
    warn(text, OPEN_HOLD);
    return hold;
  }

  lockedBy(key) {
    return lockedBy(key, this.#server, this.#connections, new Budget(this.#budget));
  }

  /** False if the lock was not held any more. */
  release(hold) {
    if (hold.isReleased || hold.isHandedOver) return Promise.resolve(false);
    hold.whyLost();
    hold.isReleased = true;
    if (hold.isOpen) return Promise.resolve(false);
    this.#forget(hold);
    hold.releasing = release(hold, this.#connections, this.#budget);
    return hold.releasing.catch((error) => {
      this.#keepUnreleased(hold);
      throw error;
    });
  }

  /** It is lost, unless it is certainly still held: then it ends with its lease. A session ends with its connection. */
  #keepUnreleased(hold) {
    hold.isReleased = false;
    hold.renews = false;
    hold.next = Infinity;
    if (hold.terms.isSession) hold.lose(SESSION);
    else if (hold.mayBeReleased) hold.lose(NOT_HELD);
    // Only the first loss takes it out, which may have been before.
    if (hold.isOver) return;
    this.#server.holds.add(hold);
    this.#wakeFor(hold);
  }

  async extend(hold, lease) {
    if (hold.isOpen) return;
    await this.#inTurnInTime(hold, (budget) => extendNow(hold, this.#connections, budget, lease));
    this.#wakeFor(hold);
  }

  async leave(hold, rest) {
    if (hold.isOpen) return;
    await this.#inTurnInTime(hold, (budget) => leave(hold, this.#connections, budget, rest));
    this.#forget(hold);
  }

  transfer(hold, successor) {
    return this.#inTurnInTime(hold, (budget) => transfer(hold, successor, this.#connections, budget));
  }

  async close() {
    for (const hold of [...this.#server.holds]) {
      hold.isKept = false;
      hold.renews = false;
      hold.next = Infinity;
      // A lease goes on until its deadline, which the timer tells.
      if (hold.terms.isSession) hold.lose(SESSION);
    }
    this.#connections.close();
    await Promise.all(this.#sessions);
  }

  #keep(hold, session) {
    this.#server.holds.add(hold);
    this.#wakeFor(hold);
    if (session) this.#keepSession(hold, session);
    if (hold.token !== null) this.#connections.listen(hold.terms.keys[0], this.#told);
  }

  #forget(hold) {
    this.#server.holds.delete(hold);
    hold.wake?.();
  }

  #keepSession(hold, session) {
    hold.wake = () => session.wake();
    const keep = async () => {
      await keepSession(hold, session);
      // Its end would come before its release.
      await hold.releasing?.catch(() => {});
      session.close();
      this.#sessions.delete(kept);
    };
    const kept = keep();
    this.#sessions.add(kept);
  }

  /** In the background: what was granted in the moment in which its acquisition was aborted is released. */
  #giveUp(terms, hold) {
    const given = hold
      ? release(hold, this.#connections, this.#budget)
      : giveUp(terms, this.#server, this.#connections, new Budget(this.#budget));
    given.catch(() => {
      // It ends with its lease.
    });
  }

  /** Requests that extend one hold go one after the other: they may name leases of different length. */
  #inTurn(hold, work) {
    const turn = (hold.extending ?? Promise.resolve()).then(work);
    hold.extending = turn.catch(() => {});
    return turn;
  }

  /** The turn counts for the budget of the call. One that comes too late does nothing. */
  #inTurnInTime(hold, work) {
    const budget = new Budget(this.#budget);
    const late = () => new Unreachable("the server has not answered in time");
    const turn = this.#inTurn(hold, () => (budget.left() > 0 ? work(budget) : Promise.reject(late())));
    return inTime(turn, budget.left(), late);
  }

  /** Wakes when the lock is to be renewed, or it is lost by its deadline. */
  #wakeFor(hold) {
    this.#timer.wakeBy(hold.terms.isSession ? hold.stopsAt : Math.min(hold.next, hold.stopsAt));
  }

  #wake() {
    for (const hold of [...this.#server.holds]) {
      if (hold.isOver) continue;
      if (!hold.terms.isSession && hold.next <= now()) {
        hold.next = Infinity;
        void this.#renew(hold);
      }
      this.#wakeFor(hold);
    }
  }

  async #renew(hold) {
    await this.#inTurn(hold, () => (hold.isOver ? undefined : renew(hold, this.#connections)));
    if (!hold.isOver) this.#wakeFor(hold);
  }

  #warnOnce(error) {
    if (!this.#hasWarned) warn(`losses of locks are found out by renewals only: ${error.message}`);
    this.#hasWarned = true;
  }
}

/** The code of the warning about an open hold. */
const OPEN_HOLD = "REDLATCH_OPEN_HOLD";

/** Shown once by Node on the error stream, and emitted as the event `warning` of the process. */
export function warn(text, code) {
  process.emitWarning(text, { type: "RedlatchWarning", code });
}
