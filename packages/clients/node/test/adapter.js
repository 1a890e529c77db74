// The client for Node, driven by `../../conformance/run.py`: what it is asked and answers is in `../../README.md`.

import { createInterface } from "node:readline";
import { Deadlock, LockHeld, LockLost, Locks, NotSupported, Refused, Unreachable } from "redlatch-client";
import { LIBRARIES } from "./libraries.js";

// The first that fits counts: a deadlock is a refusal.
const KINDS = [
  [Deadlock, "deadlock"],
  [LockHeld, "held"],
  [LockLost, "lost"],
  [NotSupported, "not-supported"],
  [Refused, "refused"],
  [Unreachable, "unreachable"],
  [RangeError, "invalid"],
  [TypeError, "invalid"],
];
const HOLDER = ["key", "owner", "token", "kind", "holders", "permits", "waiters", "meta"];

const holds = new Map();
let library;
let client;
let locks;

const VERBS = {
  libraries() {
    const ways = ({ sentinel }) => ["single", "unix", "cluster", ...(sentinel ? ["sentinel"] : [])];
    // The connections of locks speak RESP2.
    return Object.entries(LIBRARIES).map(([name, each]) => ({ name, protocols: [2], connections: ways(each) }));
  },

  async open({ library: name, connection, host, port, ports, password, path, master, hostile, ...settings }) {
    library = LIBRARIES[name];
    const timeout = ms(settings.reply_timeout);
    if (hostile) client = library.apart({ host, port });
    else if (connection === "cluster") client = await library.cluster({ host, ports, password, timeout });
    else if (connection === "sentinel") client = await library.sentinel({ ports, name: master, timeout });
    else client = await library.single(path ? { path, timeout } : { host, port, password, timeout });
    locks = new Locks(client, { budget: ms(settings.budget), onUnavailable: settings.on_unavailable });
    return null;
  },

  async close() {
    holds.clear();
    await locks.close();
    await library.close(client);
    return null;
  },

  async take({ hold, key, keys, any_of: anyOf, priority, ...given }) {
    const named = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
    // The other numbers are times.
    const valued = (value) => (typeof value === "number" ? ms(value) : value);
    const others = Object.entries(given).map(([name, value]) => [named(name), valued(value)]);
    const options = { ...Object.fromEntries(others), priority };
    const lock = keys ? locks.all(keys, options) : anyOf ? locks.anyOf(anyOf, options) : locks.lock(key, options);
    const held = await lock.acquire();
    holds.set(hold, held);
    return { token: held.token, owner: String(held.owner), open: held.open, key: keys ? null : held.key };
  },

  release: ({ hold }) => heldOf(hold).release(),

  async extend({ hold, lease }) {
    await heldOf(hold).extend(ms(lease));
    return null;
  },

  async leave({ hold, rest }) {
    await heldOf(hold).leave(ms(rest));
    return null;
  },

  transfer: ({ hold, to, lease }) => heldOf(hold).transferTo(to, ms(lease)),

  async fenced({ hold }) {
    await heldOf(hold).fenced(null);
    return null;
  },

  check({ hold }) {
    const held = heldOf(hold);
    held.throwIfLost();
    if (held.lost.aborted) throw new Error("it is told as lost, but the check says nothing");
    return null;
  },

  remaining({ hold }) {
    const left = heldOf(hold).remaining();
    return left === Infinity ? null : left / 1000;
  },

  async lost({ hold }) {
    const { lost } = heldOf(hold);
    if (!lost.aborted) await new Promise((resolve) => lost.addEventListener("abort", resolve, { once: true }));
    if (!(lost.reason instanceof LockLost)) throw new Error(`the reason of the signal is ${lost.reason}`);
    return lost.reason.reason;
  },

  locked_by: async ({ key }) => fieldsOf(await locks.lockedBy(key)),
};

const ms = (seconds) => (seconds === undefined ? undefined : seconds * 1000);

function heldOf(hold) {
  if (!holds.has(hold)) throw new Error(`no such hold: ${hold}`);
  return holds.get(hold);
}

function fieldsOf(holder) {
  return holder ? Object.fromEntries(HOLDER.map((name) => [name, holder[name]])) : null;
}

async function answer({ id, do: verb, ...words }) {
  try {
    if (!Object.hasOwn(VERBS, verb)) throw new Error(`no such verb: ${verb}`);
    return { id, is: await VERBS[verb](words) };
  } catch (error) {
    const kind = KINDS.find(([each]) => error instanceof each)?.[1] ?? "adapter";
    return { id, fails: { kind, says: error.message, holder: fieldsOf(error.holder) } };
  }
}

const lines = createInterface({ input: process.stdin });
lines.on("line", async (line) => console.log(JSON.stringify(await answer(JSON.parse(line)))));
// Connections that the client still has do not keep an adapter that nobody asks.
lines.on("close", () => process.exit());
