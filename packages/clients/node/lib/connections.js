// The connections of locks, beside the user's client: which one a request takes, and what ends it.
//
// Owns    for each node: one connection for short requests, idle ones for waits, and one that listens for losses. Each is
//         made like the user's client, but is one connection that never comes back: when it ends, another one is opened.
// Why     a renewal must not wait behind what the program sends; the user's client may send a request again by itself, which
//         would count twice; and a session is its connection.
// Rule    a connection keeps the process alive only while a request is on its way, and no longer than the user's client is
//         open.

import { RETRY_MAX } from "./core.js";
import { Closed, ErrorReply } from "./errors.js";
import { ANSWER_MAX } from "./generated.js";
import { LOST_CHANNEL, now } from "./hold.js";
import { slotOf } from "./slots.js";
import { Timer, inTime } from "./timer.js";

/** Idle connections for waits that are kept, for each node. */
const IDLE_MAX = 8;
/** How often a request follows the redirections of a cluster. */
const HOPS_MAX = 5;

const NO_OPTIONS = Object.freeze({});

export class Connections {
  isClosed = false;
  isCluster;
  /** The user's client is closed: nothing here keeps the process alive any more. */
  isDetached = false;
  #driver;
  #nodes = new Map();
  /** The only node, where there is no cluster. */
  #single;
  #replyTimeout;
  #served = new Map();
  #wires = new Set();
  #turn = 0;

  /** `driver` makes connections: of ./ioredis.js or ./node-redis.js. */
  constructor(driver) {
    this.#driver = driver;
    this.isCluster = driver.isCluster;
    // Of an address it is a text.
    this.#replyTimeout = Number(driver.replyTimeout);
    this.#single = this.#node("");
    driver.onClosed(() => this.#detach());
  }

  get prefix() {
    return this.#driver.prefix;
  }

  /**
   * Sends a request to the server of a key. A request that waits for a lock has a connection of its own; its time limit is
   * not that of the user's client. `timeout`: for all of it, with what it takes to connect; `answer`: for its answer alone.
   * Throws ErrorReply, or another error if the request was not answered.
   */
  ask(words, key, timeout, options = NO_OPTIONS) {
    const end = now() + timeout;
    if (!this.isCluster) return this.#exchange(this.#single, words, end, options);
    return this.#routed(key, end, (node) => this.#exchange(node, words, end, options));
  }

  pause(ms, signal) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const end = () => {
        clearTimeout(timer);
        reject(signal.reason);
      };
      const timer = setTimeout(() => {
        signal?.removeEventListener("abort", end);
        resolve();
      }, ms);
      if (this.isDetached) timer.unref();
      return signal?.addEventListener("abort", end, { once: true });
    });
  }

  /** A connection for one lock, which ends with it. */
  session(key) {
    return new Session(this, key);
  }

  /** Opens a connection to the server of a key, and passes it to `use`. Where it fails, the connection is ended. */
  openFor(key, end, use) {
    const open = async (node) => {
      const wire = await this.#open(node.address, end);
      try {
        return await use(wire);
      } catch (error) {
        wire.end(error);
        throw error;
      }
    };
    return this.isCluster ? this.#routed(key, end, open) : open(this.#single);
  }

  /**
   * Subscribes to the losses of the node that serves a key, unless that is done already. It goes on as long as
   * `told.isWanted()`. told: { onMessage(channel, data), onSubscribed(), onRefused(error), isWanted() }
   */
  listen(key, told) {
    const address = this.isCluster ? this.#served.get(slotOf(key)) : "";
    if (address === undefined || this.#node(address).isListening) return;
    this.#node(address).isListening = true;
    void this.#listen(this.#node(address), told);
  }

  /** Ends all connections. What waits for an answer fails. */
  close() {
    this.isClosed = true;
    for (const wire of this.#wires) wire.end(new Closed());
  }

  /** How long an answer may take. The limit of the user's client counts for what does not wait for a lock. */
  limit(end, { waits, answer } = NO_OPTIONS) {
    const left = Math.max(end - now(), 0);
    if (waits) return left;
    const own = this.#replyTimeout;
    return Math.min(left, answer ?? left, own > 0 ? own : left);
  }

  #node(address) {
    let node = this.#nodes.get(address);
    if (!node) this.#nodes.set(address, (node = new Node(address)));
    return node;
  }

  #exchange(node, words, end, options) {
    const { isBinary, signal } = options;
    const call = (wire) => wire.call(words, this.limit(end, options), isBinary, signal);
    if (options.waits) return this.#exchangeAlone(node, call, end, signal);
    if (node.shared?.hasEnded === false) return call(node.shared);
    return inTime(this.#sharedOf(node), end - now(), notConnected).then(call);
  }

  async #exchangeAlone(node, call, end, signal) {
    const wire = node.idle.pop() ?? (await this.#open(node.address, end));
    // The server takes a request out of the queue when its connection ends.
    const abort = () => wire.end(signal.reason);
    signal?.addEventListener("abort", abort, { once: true });
    try {
      return await call(wire);
    } finally {
      signal?.removeEventListener("abort", abort);
      if (node.idle.length >= IDLE_MAX) wire.end();
      else if (!wire.hasEnded) node.idle.push(wire);
    }
  }

  /** The one connection for short requests. Those that come while it is opened wait for it. */
  async #sharedOf(node) {
    node.opening ??= this.#open(node.address).finally(() => (node.opening = null));
    return (node.shared = await node.opening);
  }

  /** Opens a connection until `end`, or in the time that an answer may take. */
  async #open(address, end = Infinity) {
    if (this.isClosed) throw new Closed();
    const late = Math.min(end, now() + ANSWER_MAX);
    const connection = await inTime(this.#driver.make(address), late - now(), noServer);
    const wire = new Wire(connection, this);
    this.#wires.add(wire);
    wire.onEnd(() => {
      this.#wires.delete(wire);
      const node = this.#node(address);
      node.idle = node.idle.filter((each) => each !== wire);
    });
    try {
      await wire.open(this.limit(late));
    } catch (error) {
      wire.end(error);
      throw error;
    }
    if (this.isClosed) wire.end(new Closed());
    return wire;
  }

  /** Asks the node that serves a key, and follows the redirections of the cluster. */
  async #routed(key, end, use) {
    const slot = slotOf(key);
    for (let hops = 0; ; hops++) {
      const address = this.#served.get(slot) ?? (await inTime(this.#anyAddress(), end - now(), noServer));
      try {
        const found = await use(this.#node(address));
        this.#served.set(slot, address);
        return found;
      } catch (error) {
        const [, target] = (error instanceof ErrorReply && /^MOVED \d+ (\S+)/.exec(error.message)) || [];
        if (target) this.#served.set(slot, target.startsWith(":") ? address.replace(/:\d+$/, target) : target);
        // Another node may serve it by now.
        else if (!(error instanceof ErrorReply) || /^CLUSTERDOWN/.test(error.message)) this.#served.delete(slot);
        if (!target || hops >= HOPS_MAX) throw error;
      }
    }
  }

  async #anyAddress() {
    const addresses = await this.#driver.addresses();
    if (addresses.length === 0) throw new Error("no node of the cluster is known");
    return addresses[this.#turn++ % addresses.length];
  }

  async #listen(node, told) {
    while (!this.isClosed && told.isWanted()) {
      let wire = null;
      try {
        wire = await this.#open(node.address);
        await wire.subscribe(`${LOST_CHANNEL}*`, told.onMessage);
        told.onSubscribed();
        await new Promise((resolve) => wire.onEnd(resolve));
      } catch (error) {
        wire?.end(error);
        if (error instanceof ErrorReply && /^(NOAUTH|NOPERM|WRONGPASS)/.test(error.message)) return told.onRefused(error);
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MAX).unref());
    }
    // The next lock there listens again.
    node.isListening = false;
    return undefined;
  }

  #detach() {
    this.isDetached = true;
    for (const wire of this.#wires) wire.unref();
  }
}

class Node {
  isListening = false;
  shared = null;
  opening = null;
  idle = [];

  constructor(address) {
    this.address = address;
  }
}

/** One connection, with a time limit for each request. */
class Wire {
  hasEnded = false;
  #connection;
  #owner;
  #failure = null;
  #requests = new Set();
  #timer = new Timer(() => this.#endIfLate());
  #endings = [];

  constructor(connection, owner) {
    this.#connection = connection;
    this.#owner = owner;
    connection.onEnd((error) => this.end(error));
  }

  async open(limit) {
    await this.#limited(limit, () => this.#connection.open());
  }

  /** Rejects when the connection ends: the library fails what is on its way then. */
  async call(words, limit, isBinary = false, signal = undefined) {
    signal?.throwIfAborted();
    if (this.hasEnded) throw this.#failure;
    const request = this.#begin(limit);
    try {
      return await this.#connection.call(words, isBinary);
    } catch (error) {
      throw failureOf(error, this.#failure);
    } finally {
      this.#settle(request);
    }
  }

  subscribe(pattern, onMessage) {
    return this.#limited(ANSWER_MAX, () => this.#connection.subscribe(pattern, onMessage));
  }

  /** Ends it. The requests that are on their way fail with this error. */
  end(error = new Error("the connection has ended")) {
    if (this.hasEnded) return;
    this.hasEnded = true;
    this.#failure = error ?? new Error("the connection has ended");
    this.#timer.stop();
    this.#connection.destroy();
    for (const ending of this.#endings.splice(0)) ending(this.#failure);
  }

  /** Has a function called when it ends, or now if it has. */
  onEnd(ending) {
    if (this.hasEnded) ending(this.#failure);
    else this.#endings.push(ending);
  }

  offEnd(ending) {
    this.#endings = this.#endings.filter((each) => each !== ending);
  }

  unref() {
    this.#connection.unref();
  }

  /** Rejects at the limit, also where the library does not notice the end of the connection. */
  async #limited(limit, send) {
    if (this.hasEnded) throw this.#failure;
    const request = this.#begin(limit);
    const ending = new Promise((_, reject) => this.onEnd(reject));
    try {
      return await Promise.race([send(), ending]);
    } catch (error) {
      throw failureOf(error, this.#failure);
    } finally {
      this.#settle(request);
    }
  }

  #begin(limit) {
    const request = { limit, until: now() + limit };
    // The connection keeps the process alive, or does not; so its timer need not.
    if (this.#requests.size === 0 && !this.#owner.isDetached) this.#connection.ref();
    this.#requests.add(request);
    this.#timer.wakeBy(request.until);
    return request;
  }

  #settle(request) {
    this.#requests.delete(request);
    if (this.#requests.size === 0) this.#connection.unref();
  }

  #endIfLate() {
    const at = now();
    for (const { limit, until } of this.#requests) {
      if (until <= at) return this.end(new Error(`the server has not answered for ${Math.round(limit)} ms`));
      this.#timer.wakeBy(until);
    }
    return undefined;
  }
}

/** What a reply begins with that is an error: an upper-case word. The errors of libraries and of sockets begin otherwise. */
const REPLY = /^[A-Z][A-Z0-9_]+(?= |$)/;

function failureOf(error, failure) {
  const found = failure ?? error;
  const isReply = REPLY.test(found?.message) && !(found instanceof ErrorReply);
  return isReply ? new ErrorReply(found.message, { cause: found }) : found;
}

const noServer = () => new Error("the client library knows no server to connect to");
const notConnected = () => new Error("the server cannot be connected to in time");

/** Throws the redirection of a node that does not serve a key. */
async function mustServe(wire, key, limit) {
  try {
    await wire.call(["lock.who", key], limit);
  } catch (error) {
    if (!(error instanceof ErrorReply) || error.message.startsWith("MOVED")) throw error;
  }
}

/** The connection of a session. It belongs to one lock, and its end ends the session, at once or after the delay. */
class Session {
  #connections;
  #key;
  #wire = null;
  #woken = null;

  constructor(connections, key) {
    this.#connections = connections;
    this.#key = key;
  }

  /** Ends the connection, and opens another one. */
  async reconnect(timeout) {
    const end = now() + timeout;
    this.close();
    await this.#connections.openFor(this.#key, end, async (wire) => {
      if (this.#connections.isCluster) await mustServe(wire, this.#key, this.#connections.limit(end));
      this.#wire = wire;
    });
  }

  async ask(words, key, timeout, options = NO_OPTIONS) {
    const { isBinary, signal } = options;
    const wire = this.#wire;
    if (!wire) throw new Error("the session has no connection");
    const abort = () => wire.end(signal.reason);
    signal?.addEventListener("abort", abort, { once: true });
    try {
      return await wire.call(words, this.#connections.limit(now() + timeout, options), isBinary, signal);
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  pause(ms, signal) {
    return this.#connections.pause(ms, signal);
  }

  /** Waits so long, or until `wake()`. Throws when the connection ends. */
  async listen(ms) {
    const wire = this.#wire;
    if (!wire) throw new Error("the session has no connection");
    let timer;
    let ending;
    try {
      await new Promise((resolve, reject) => {
        ending = reject;
        this.#woken = resolve;
        timer = setTimeout(resolve, Math.ceil(ms)).unref();
        wire.onEnd(ending);
      });
    } finally {
      clearTimeout(timer);
      wire.offEnd(ending);
      this.#woken = null;
    }
  }

  wake() {
    this.#woken?.();
  }

  close() {
    this.#wire?.end();
    this.#wire = null;
  }
}
