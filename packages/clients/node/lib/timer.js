// One timer for many deadlines. Most of them are not reached: a lock is released, a request is answered.

import { now } from "./hold.js";

/** The longest time that a timer of Node can wait. */
const TIMER_MAX = 2 ** 31 - 1;

/**
 * Calls a function at the earliest moment that was asked for. The later ones are forgotten then: the function asks for them
 * again. It is called too early, too, for what has ended meanwhile. It keeps no process alive.
 */
export class Timer {
  #at = Infinity;
  #timeout = null;
  #call;

  constructor(call) {
    this.#call = call;
  }

  /** At this moment of `now()`, unless it is planned for an earlier one. */
  wakeBy(at) {
    if (at >= this.#at) return;
    this.#at = at;
    clearTimeout(this.#timeout);
    const left = Math.min(Math.max(Math.ceil(at - now()), 0), TIMER_MAX);
    this.#timeout = setTimeout(() => {
      this.#at = Infinity;
      this.#call();
    }, left).unref();
  }

  stop() {
    clearTimeout(this.#timeout);
    this.#at = Infinity;
  }
}

/** What a promise comes to, or the error of `late` when that takes longer. What it stands for ends by itself then. */
export async function inTime(promise, ms, late) {
  let timer;
  const ending = new Promise((_, reject) => {
    timer = setTimeout(() => reject(late()), Math.min(Math.max(Math.ceil(ms), 0), TIMER_MAX));
  });
  try {
    return await Promise.race([promise, ending]);
  } finally {
    clearTimeout(timer);
  }
}
