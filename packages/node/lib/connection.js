// A connection that speaks RESP3: commands go out, replies come back in the same order.
//
// Owns    the socket, the replies that are awaited, the decoder.
// Rule    an open connection does not keep the process alive; a reply that is awaited does.

import net from "node:net";

/** A command that the server refused. `code` is the first word of its text. */
export class CommandError extends Error {
  constructor(text) {
    super(text);
    this.name = "CommandError";
    this.code = text.split(" ", 1)[0];
  }
}

/** A reply takes longer than this only if the node is paused or the server is gone. */
const REPLY_MS_MAX = 30_000;

class Connection {
  #socket;
  #decoder = decoder((reply) => this.#deliver(reply));
  #awaited = [];
  #failure = null;

  /** Connects to `port`, and enters a namespace if there is a password for it. */
  static async open(host, port, password) {
    const connection = new Connection(host, port);
    const login = password ? ["AUTH", "default", password] : [];
    await connection.call("HELLO", 3, ...login, "SETNAME", "redlatch-test");
    return connection;
  }

  constructor(host, port) {
    this.#decoder.next();
    this.#socket = net.connect({ host, port, noDelay: true });
    this.#socket.unref();
    this.#socket.on("data", (bytes) => this.#decode(bytes));
    this.#socket.on("error", (error) => this.#end(error));
    this.#socket.on("close", () => this.#end(new Error(`the connection to ${host}:${port} is closed`)));
  }

  get isOpen() {
    return this.#failure === null;
  }

  call(...words) {
    if (this.#failure) return Promise.reject(this.#failure);
    return new Promise((resolve, reject) => {
      const late = () => this.#socket.destroy(new Error(`no reply to ${words[0]} for ${REPLY_MS_MAX} ms`));
      this.#awaited.push({ resolve, reject, timer: setTimeout(late, REPLY_MS_MAX) });
      this.#socket.ref();
      this.#socket.write(encode(words));
    });
  }

  close() {
    this.#socket.destroy();
    this.#end(new Error("the connection is closed"));
  }

  #decode(bytes) {
    try {
      this.#decoder.next(bytes);
    } catch (error) {
      this.#socket.destroy(error);
    }
  }

  #deliver(reply) {
    const call = this.#awaited.shift();
    if (!call) return;
    clearTimeout(call.timer);
    if (this.#awaited.length === 0) this.#socket.unref();
    if (reply instanceof CommandError) call.reject(reply);
    else call.resolve(reply);
  }

  #end(failure) {
    this.#failure ??= failure;
    for (const call of this.#awaited.splice(0)) {
      clearTimeout(call.timer);
      call.reject(this.#failure);
    }
  }
}

/** A connection that is opened when it is first needed, and again if it has ended. */
export class Link {
  #target;
  #opening = null;

  /** `target` is what `Connection.open()` takes. */
  constructor(...target) {
    this.#target = target;
  }

  async open() {
    const opening = this.#opening;
    const connection = await opening?.catch(() => null);
    if (connection?.isOpen) return connection;
    // Another call may have begun to open it again meanwhile.
    if (this.#opening === opening) this.#opening = Connection.open(...this.#target);
    return this.#opening;
  }

  close() {
    this.#opening?.then((connection) => connection.close(), () => {});
    this.#opening = null;
  }
}

function encode(words) {
  const parts = [`*${words.length}\r\n`];
  for (const word of words) {
    const text = String(word);
    parts.push(`$${Buffer.byteLength(text)}\r\n${text}\r\n`);
  }
  return parts.join("");
}

/** A generator that is given bytes, and gives each whole reply to `deliver`. Push messages are skipped. */
function* decoder(deliver) {
  let buffer = Buffer.alloc(0);
  let start = 0;
  const more = function* () {
    const bytes = yield;
    buffer = Buffer.concat([buffer.subarray(start), bytes]);
    start = 0;
  };
  const line = function* () {
    let end;
    while ((end = buffer.indexOf("\r\n", start)) < 0) yield* more();
    const text = buffer.toString("utf8", start, end);
    start = end + 2;
    return text;
  };
  const blob = function* (length) {
    while (buffer.length < start + length + 2) yield* more();
    const text = buffer.toString("utf8", start, start + length);
    start += length + 2;
    return text;
  };
  const list = function* (length) {
    const values = [];
    while (values.length < length) values.push(yield* value());
    return values;
  };
  const map = function* (length) {
    const entries = [];
    while (entries.length < length) entries.push([yield* value(), yield* value()]);
    return Object.fromEntries(entries);
  };
  const value = function* () {
    const head = yield* line();
    const text = head.slice(1);
    const length = Number(text);
    switch (head[0]) {
      case "+": return text;
      case "-": return new CommandError(text);
      case ":": return length;
      case ",": return Number(text.replace("inf", "Infinity"));
      case "#": return text === "t";
      case "(": return BigInt(text);
      case "_": return null;
      case "$": return length < 0 ? null : yield* blob(length);
      case "=": return (yield* blob(length)).slice(4);
      case "!": return new CommandError(yield* blob(length));
      case "*": return length < 0 ? null : yield* list(length);
      case "~": return yield* list(length);
      case "%": return yield* map(length);
      case ">": {
        yield* list(length);
        return yield* value();
      }
      default: throw new Error(`a reply begins with ${JSON.stringify(head[0])}`);
    }
  };
  while (true) deliver(yield* value());
}
