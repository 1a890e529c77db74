// Does the steps of `../../conformance.json` with a client. What each step means is in `../../README.md`.

import { readFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Deadlock, LockHeld, LockLost, NotSupported, Refused, Unreachable } from "redlatch-client";
import { CLIENTS } from "./servers.js";

export const PATIENCE = 30_000;
export const SCENARIOS = JSON.parse(readFileSync(path.join(CLIENTS, "conformance.json"), "utf8")).scenarios;

const FAILURES = {
  deadlock: [Deadlock],
  held: [LockHeld],
  "held-or-refused": [LockHeld, Refused],
  invalid: [RangeError, TypeError],
  lost: [LockLost],
  "not-supported": [NotSupported],
  refused: [Refused],
  unreachable: [Unreachable],
};
const OPTIONS = ["lease", "wait", "shared", "permits", "reentrant", "session", "delay", "meta", "owner", "renew"];
/** Seconds in the scenarios, milliseconds here. */
const DURATIONS = ["lease", "wait", "delay"];

/** Waits until a question has the answer that is wanted. */
export async function until(ask, fits) {
  const end = performance.now() + PATIENCE;
  for (;;) {
    const found = await ask();
    if (fits(found)) return found;
    if (performance.now() > end) throw new Error(`it is ${JSON.stringify(found)}`);
    await pause(5);
  }
}

/** A run of one scenario. `locks`: the client; `ask` sends a command beside it; `restart` restarts the server. */
export class Runner {
  #locks;
  #ask;
  #restart;
  #holds = new Map();
  #begun = new Map();

  constructor(locks, ask, restart) {
    this.#locks = locks;
    this.#ask = ask;
    this.#restart = restart;
  }

  async run(steps) {
    for (const [number, step] of steps.entries()) {
      const [verb, what] = Object.entries(step)[0];
      try {
        const work = VERBS[verb];
        if (!work) throw new Error(`no such verb: ${verb}`);
        const begun = performance.now();
        await work(this, what, step);
        const took = (performance.now() - begun) / 1000;
        const { after = 0, within: most = took } = step;
        if (!(after <= took && took <= most)) throw new Error(`it has taken ${took} s`);
      } catch (error) {
        throw new Error(`step ${number + 1}, ${JSON.stringify(step)}: ${error.name}: ${error.message}`, { cause: error });
      }
    }
  }

  lock(step) {
    const options = {};
    for (const name of OPTIONS.filter((each) => each in step)) {
      options[name] = DURATIONS.includes(name) ? step[name] * 1000 : this.filled(step[name]);
    }
    return "keys" in step ? this.#locks.all(step.keys, options) : this.#locks.lock(step.key, options);
  }

  held(name) {
    return this.#holds.get(name);
  }

  keep(name, held) {
    this.#holds.set(name, held);
  }

  begin(name, step) {
    const acquiring = this.lock(step).acquire();
    acquiring.catch(() => {});
    this.#begun.set(name, acquiring);
  }

  granted(name) {
    return within(this.#begun.get(name), "it still waits");
  }

  /** Does what must fail if the step says so; resolves to the error. */
  async attempt(step, work) {
    const wanted = FAILURES[step.fails];
    if (step.fails && !wanted) throw new Error(`no such failure: ${step.fails}`);
    try {
      await work();
    } catch (error) {
      if (wanted?.some((kind) => error instanceof kind)) return error;
      throw error;
    }
    if (wanted) throw new Error("it has not failed");
    return null;
  }

  says(error, texts = []) {
    for (const text of texts.map((each) => this.filled(each))) {
      if (!error.message.includes(text)) throw new Error(`${JSON.stringify(text)} is not in: ${error.message}`);
    }
  }

  lockedBy(key) {
    return this.#locks.lockedBy(key);
  }

  compare(holder, wanted) {
    if (wanted === null) return equal(holder, null);
    for (const [name, value] of Object.entries(wanted)) {
      const filled = this.filled(value);
      const found = holder?.[name];
      equal(typeof filled === "string" ? String(found) : found, filled);
    }
    return undefined;
  }

  ask(words) {
    return this.#ask(...words.map((word) => this.filled(word)));
  }

  async until(words, field, fits) {
    const ask = async () => {
      // The server may have been killed.
      const found = await this.ask(words).catch((error) => (/^[A-Z]+ /.test(error.message) ? Promise.reject(error) : null));
      return (field?.split(".") ?? []).reduce((inner, name) => inner?.[name], found);
    };
    await until(ask, (found) => fits(found ?? null));
  }

  restart() {
    return this.#restart();
  }

  /** `$a.token` stands for what the hold `a` has; `{"repeat": ...}` for a long text. */
  filled(value) {
    if (typeof value?.repeat === "string") return value.repeat.repeat(value.times);
    if (typeof value === "string") {
      return [...this.#holds].reduce(
        (text, [name, held]) => text.replaceAll(`$${name}.token`, held.token).replaceAll(`$${name}.owner`, held.owner),
        value,
      );
    }
    if (Array.isArray(value) || value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, this.filled(each)]));
  }
}

const VERBS = {
  async take(run, name, step) {
    const error = await run.attempt(step, async () => run.keep(name, await run.lock(step).acquire()));
    if (!error) return;
    run.says(error, step.says);
    if (step.holder) run.compare(error.holder, step.holder);
  },
  begin: (run, name, step) => run.begin(name, step),
  granted: async (run, name) => run.keep(name, await run.granted(name)),
  release: (run, name, step) => run.attempt(step, async () => equal(await run.held(name).release(), step.gives)),
  async extend(run, name, step) {
    await run.attempt(step, () => run.held(name).extend(step.lease === undefined ? undefined : step.lease * 1000));
  },
  leave: (run, name, step) => run.attempt(step, () => run.held(name).leave(step.rest * 1000)),
  holds(run, name) {
    const held = run.held(name);
    held.throwIfLost();
    if (held.lost.aborted || !(held.remaining() > 0)) throw new Error("it is lost");
  },
  async lost(run, name, step) {
    const held = run.held(name);
    await until(() => held.lost.aborted, Boolean);
    const loss = held.lost.reason;
    if (!(loss instanceof LockLost) || !step.reason.includes(loss.reason)) throw new Error(`the reason is ${loss.reason}`);
    equal(held.remaining(), 0);
    const thrown = await run.attempt({ fails: "lost" }, async () => held.throwIfLost());
    run.says(thrown, step.says);
  },
  // It is subscribed, and has renewed what it held before.
  listens: (run, name) => run.until(["LOCK.WHO", run.held(name).key], "holders.0.renewals", (found) => found >= 1),
  remaining: (run, name, step) => between(run.held(name).remaining() / 1000, step),
  token: (run, name, step) => equal(run.held(name).token, step.is),
  rise(run, names) {
    const tokens = names.map((name) => run.held(name).token);
    equal(tokens, [...new Set(tokens)].sort((a, b) => a - b));
  },
  next_token(run, names) {
    const [first, second] = names.map((name) => run.held(name).token);
    equal(second, first + 1);
  },
  locked_by: async (run, key, step) => run.compare(await run.lockedBy(key), step.is),
  async server(run, words, step) {
    const answer = await run.ask(words);
    if ("answers" in step) equal(answer, run.filled(step.answers));
  },
  until: (run, words, step) =>
    run.until(words, step.field, (found) => {
      if ("is" in step) return found === step.is;
      return found !== null && found >= (step.at_least ?? found) && found <= (step.at_most ?? found);
    }),
  restart: (run) => run.restart(),
};

function equal(found, wanted) {
  const [one, other] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (one !== other) throw new Error(`it is ${one}, not ${other}`);
}

function between(found, { at_least = found, at_most = found }) {
  if (!(found >= at_least && found <= at_most)) throw new Error(`it is ${found}`);
}

/** What a promise resolves to, which must be in time. */
export async function within(promise, complaint) {
  const ended = new AbortController();
  const late = pause(PATIENCE, undefined, { signal: ended.signal }).then(() => Promise.reject(new Error(complaint)));
  late.catch(() => {});
  try {
    return await Promise.race([promise, late]);
  } finally {
    ended.abort();
  }
}
