// What can go wrong with a lock: all of it is a `LockError`. And how texts of others are shown.

import { REASONS } from "./generated.js";

/** The base of all others. */
export class LockError extends Error {
  get name() {
    return this.constructor.name;
  }
}

/** Somebody else holds the lock, and the wait has ended. The text says who, why and since when, and how to break it. */
export class LockHeld extends LockError {
  constructor(key, holder) {
    const lines = [`${shown(holder?.key ?? key)} is held`];
    if (holder) lines.push(String(holder));
    if (holder && holder.token !== null) {
      lines.push(`To take it by force: redlatch break ${quoted(shown(holder.key))} --token ${holder.token}`);
    }
    super(lines.join("\n"));
    this.key = holder?.key ?? key;
    this.holder = holder;
  }
}

/** The lock is held no longer: somebody else may have it. */
export class LockLost extends LockError {
  constructor(key, token, reason, text = null) {
    super(`${shown(key)} is lost: ${REASONS[reason] ?? reason}${text ? `: ${text}` : ""}`);
    this.key = key;
    this.token = token;
    this.reason = reason;
    this.text = text;
  }
}

/** The server is no redlatch, and plain Redis commands cannot do this. */
export class NotSupported extends LockError {
  constructor(what, options) {
    super(`${what}: this takes a server with LOCK commands, which this one lacks`, options);
    this.what = what;
  }
}

/** The server refuses the request. Its text; the error of the client library is the `cause`. */
export class Refused extends LockError {}

/** To wait would close a circle of owners, each waiting for a lock of the next. */
export class Deadlock extends Refused {}

/** The server cannot be asked. What was held is held until its lease ends. */
export class Unreachable extends LockError {}

/** The database has seen a higher token: somebody else has had the lock since. The transaction must be rolled back. */
export class StaleToken extends LockError {}

/** An error that the server has answered, as it says it. Other errors are those of connections. */
export class ErrorReply extends Error {}

/** These locks were closed. */
export class Closed extends Error {
  constructor() {
    super("these locks are closed");
  }
}

/** A text of others, with escapes for what cannot be seen, moves the cursor or turns text around. */
export function shown(text) {
  return text.replace(/[\p{C}\p{Z}]/gu, (char) => (char === " " ? char : escaped(char.codePointAt(0))));
}

function escaped(code) {
  if (code <= 0xff) return `\\x${code.toString(16).padStart(2, "0")}`;
  if (code <= 0xffff) return `\\u${code.toString(16).padStart(4, "0")}`;
  return `\\U${code.toString(16).padStart(8, "0")}`;
}

/** A text as one word of a shell. */
function quoted(text) {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}
