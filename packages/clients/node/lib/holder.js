// Who holds a lock: read from an answer of LOCK.WHO, and shown.

import { shown } from "./errors.js";

/** Who holds a lock. What the server does not tell is null. Times are in milliseconds. */
export class Holder {
  constructor(key, owner, more = {}) {
    this.key = key;
    this.owner = owner;
    this.token = more.token ?? null;
    this.since = more.since ?? null;
    this.held = more.held ?? null;
    this.left = more.left ?? null;
    this.meta = more.meta ?? {};
    this.kind = more.kind ?? "exclusive";
    this.holders = more.holders ?? 1;
    this.permits = more.permits ?? 1;
    this.waiters = more.waiters ?? null;
    this.address = more.address ?? null;
    Object.freeze(this);
  }

  /** A line for each thing that is known. */
  toString() {
    const others = this.holders > 1 ? ` and ${this.holders - 1} others` : "";
    const lines = [
      ["key", shown(this.key)],
      ["holder", (this.owner === null ? "unknown" : shown(this.owner)) + others],
      ["at", this.address],
      ...Object.entries(this.meta).map(([name, value]) => [shown(name), shown(value)]),
      ["since", this.since === null ? null : `${moment(this.since)}, for ${seconds(this.held ?? 0)}`],
      ["lease", this.left === null ? null : `${seconds(this.left)} left`],
      ["token", this.token],
      ["queue", this.waiters === null ? null : `${this.waiters} waiting`],
    ];
    const width = Math.max(...lines.map(([name]) => name.length)) + 2;
    return lines
      .filter(([, text]) => text !== null)
      .map(([name, text]) => `  ${`${name}:`.padEnd(width)}${text}`)
      .join("\n");
  }
}

/** The first holder in an answer of LOCK.WHO whose texts are bytes. Null if there is none. */
export function holderOf(reply) {
  const lock = fields(reply);
  const holders = lock.holders ?? [];
  if (holders.length === 0) return null;
  const first = fields(holders[0]);
  return new Holder(text(lock.key), first.owner === null ? null : text(first.owner), {
    token: first.token,
    since: first.since,
    held: first.held,
    left: first.left,
    meta: texts(first.meta),
    kind: text(lock.kind),
    holders: holders.length,
    permits: first.permits || 1,
    waiters: lock.waiters,
    address: first.client ? text(fields(first.client).addr) : null,
  });
}

/** A map, which RESP2 has as a list of names and values. Nothing is an empty one. */
export function fields(reply) {
  const found = Object.create(null);
  if (!reply) return found;
  for (let at = 0; at + 1 < reply.length; at += 2) found[reply[at]] = reply[at + 1];
  return found;
}

/** One value of a map, or undefined. */
export function field(reply, name) {
  const at = reply ? reply.indexOf(name) : -1;
  return at < 0 ? undefined : reply[at + 1];
}

/** A map of texts, which are bytes in the reply. */
export function texts(reply) {
  return Object.fromEntries(Object.entries(fields(reply)).map(([name, value]) => [name, text(value)]));
}

/** Bytes as text. What is no UTF-8 has an escape for each byte. */
export function text(bytes) {
  if (typeof bytes === "string") return bytes;
  const read = bytes.toString();
  if (!read.includes("\ufffd")) return read;
  return Buffer.from(read).equals(bytes) ? read : bytes.toString("latin1").replace(/[\x80-\xff]/g, hex);
}

function hex(char) {
  return `\\x${char.charCodeAt(0).toString(16)}`;
}

function moment(ms) {
  return `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

function seconds(ms) {
  return `${(ms / 1000).toFixed(1)} s`;
}
