// A namespace: its clock, its faults, its nodes, and what happened in it. All times are in milliseconds.

import { execFile } from "node:child_process";
import { promisify } from "node:util";

import { Link } from "./connection.js";

const HISTORY_BYTES_MAX = 256 * 1024 * 1024;

export class Namespace {
  #server;
  #links;
  // The ports of nodes that this namespace has told not to answer. The other ones are asked first.
  #silent = new Set();

  constructor(server, name) {
    this.#server = server;
    this.name = name;
    this.#links = new Map(server.ports.map((port) => [port, new Link(server.host, port, this.password)]));
    this.clock = new Clock(this);
    this.faults = new Faults(this);
    this.slots = new Slots(this);
    this.nodes = new Nodes(this, server.ports, {
      silence: (port) => this.#silence(port),
      wake: (port) => this.#silent.delete(port),
    });
  }

  get url() {
    return this.#url(this.port);
  }

  get urls() {
    return this.#server.ports.map((port) => this.#url(port));
  }

  get host() {
    return this.#server.host;
  }

  get port() {
    return this.#server.port;
  }

  get password() {
    return `namespace:${this.name}`;
  }

  /** Sends a command to the first node that can be reached. */
  async call(...words) {
    const ports = this.#server.ports;
    const answering = ports.filter((port) => !this.#silent.has(port));
    let lost;
    for (const port of answering.length > 0 ? answering : ports) {
      let connection;
      try {
        connection = await this.#links.get(port).open();
      } catch (error) {
        lost = error;
        continue;
      }
      return connection.call(...words);
    }
    throw lost;
  }

  history(filter = {}) {
    return this.call("TEST.HISTORY", ...options(filter, ["since", "key", "command", "client", "count"]));
  }

  calls(filter = {}) {
    return this.call("TEST.CALLS", ...options(filter, ["key", "command", "client"]));
  }

  check() {
    return this.call("TEST.CHECK");
  }

  async timeline({ format = "text" } = {}) {
    const args = ["timeline", this.url, "--format", format];
    const limits = { maxBuffer: HISTORY_BYTES_MAX };
    try {
      return (await promisify(execFile)(this.#server.binary, args, limits)).stdout;
    } catch (error) {
      throw new Error(`redlatch timeline: ${error.stderr?.trim() || error.message}`);
    }
  }

  close() {
    for (const link of this.#links.values()) link.close();
  }

  async drop() {
    this.close();
    return this.#server.drop(this.name);
  }

  async [Symbol.asyncDispose]() {
    await this.drop();
  }

  #url(port) {
    return `redis://:${encodeURIComponent(this.password)}@${this.host}:${port}`;
  }

  /** Asks other nodes than this one from now on, if there are others. */
  #silence(port) {
    this.#silent.add(port);
    this.#links.get(port)?.close();
  }
}

export class Clock {
  #namespace;

  constructor(namespace) {
    this.#namespace = namespace;
  }

  freeze() {
    return this.#call("FREEZE");
  }

  run() {
    return this.#call("RUN");
  }

  advance(ms) {
    return this.#call("ADVANCE", ms);
  }

  set(moment) {
    return this.#call("SET", Number(moment));
  }

  next() {
    return this.#call("NEXT");
  }

  async auto(on = true, { idle } = {}) {
    if (!on) await this.#call("AUTO", "OFF");
    else await this.#call("AUTO", "ON", ...options({ idle }, ["idle"]));
  }

  stepWall(ms) {
    return this.#call("STEP-WALL", ms);
  }

  show() {
    return this.#call("SHOW");
  }

  async now() {
    return (await this.show()).now;
  }

  #call(...words) {
    return this.#namespace.call("TEST.CLOCK", ...words);
  }
}

const CONDITIONS = ["command", "key", "script", "client", "node", "nth", "every", "probability", "seed", "times"];

export class Faults {
  #namespace;

  constructor(namespace) {
    this.#namespace = namespace;
  }

  async add(action, conditions = {}) {
    const unknown = Object.keys(conditions).filter((name) => !CONDITIONS.includes(name));
    if (unknown.length > 0) throw new TypeError(`a fault has no condition ${unknown.join(", ")}`);
    const seeded = conditions.probability === undefined ? conditions : { seed: 1, ...conditions };
    const words = options(seeded, CONDITIONS);
    const id = await this.#call("ADD", ...words, "DO", ...[action].flat());
    return new Fault(this, id);
  }

  dropReply(conditions) {
    return this.add("DROP-AFTER", conditions);
  }

  dropBefore(conditions) {
    return this.add("DROP-BEFORE", conditions);
  }

  halfReply(conditions) {
    return this.add("HALF-REPLY", conditions);
  }

  reset(conditions) {
    return this.add("RESET", conditions);
  }

  delay(ms, conditions) {
    return this.add(["DELAY", ms], conditions);
  }

  stall(ms, conditions) {
    return this.add(["STALL", ms], conditions);
  }

  error(text, conditions) {
    return this.add(["ERROR", text], conditions);
  }

  pauseClient(ms, conditions) {
    return this.add(["PAUSE-CLIENT", ms], conditions);
  }

  expireKey(conditions) {
    return this.add("EXPIRE-KEY", conditions);
  }

  duplicate(conditions) {
    return this.add("DUPLICATE", conditions);
  }

  list() {
    return this.#call("LIST");
  }

  async remove(id) {
    return (await this.#call("REMOVE", id)) === 1;
  }

  clear() {
    return this.#call("CLEAR");
  }

  #call(...words) {
    return this.#namespace.call("TEST.FAULT", ...words);
  }
}

export class Fault {
  #faults;

  constructor(faults, id) {
    this.#faults = faults;
    this.id = id;
  }

  async hits() {
    return (await this.#state()).hits;
  }

  async met() {
    return (await this.#state()).met;
  }

  remove() {
    return this.#faults.remove(this.id);
  }

  async #state() {
    const state = (await this.#faults.list()).find((fault) => fault.id === this.id);
    if (!state) throw new Error(`fault ${this.id} has been removed`);
    return state;
  }
}

export class Nodes {
  #namespace;
  #ports;
  #answers;

  constructor(namespace, ports, answers) {
    this.#namespace = namespace;
    this.#ports = ports;
    this.#answers = answers;
  }

  list() {
    return this.#namespace.call("TEST.NODE", "LIST");
  }

  crash(node, { keep = false } = {}) {
    return this.#silence("CRASH", node, keep ? "KEEP" : "LOSE");
  }

  start(node) {
    return this.#wake("START", node);
  }

  pause(node) {
    return this.#silence("PAUSE", node);
  }

  resume(node) {
    return this.#wake("RESUME", node);
  }

  skew(node, ms) {
    return this.#change("SKEW", node, ms);
  }

  partition(node, { client = "*" } = {}) {
    return this.#silence("PARTITION", node, "CLIENT", client);
  }

  isolate(node) {
    return this.#change("PARTITION", node, "NODES");
  }

  heal(node) {
    return this.#wake("HEAL", node);
  }

  replication(node, on) {
    return this.#change("REPLICATION", node, on ? "ON" : "OFF");
  }

  /** A node cannot end its own answers: another one is asked, now and from now on, if there is another. */
  async #silence(action, node, ...words) {
    this.#answers.silence(this.#ports[node - 1]);
    await this.#change(action, node, ...words);
  }

  async #wake(action, node) {
    await this.#change(action, node);
    this.#answers.wake(this.#ports[node - 1]);
  }

  async #change(action, node, ...words) {
    await this.#namespace.call("TEST.NODE", action, node, ...words);
  }
}

export class Slots {
  #namespace;

  constructor(namespace) {
    this.#namespace = namespace;
  }

  move(slot, node, { steps } = {}) {
    return this.#namespace.call("TEST.SLOT", "MOVE", slot, "TO", node, ...options({ steps }, ["steps"]));
  }

  async freeze(node) {
    await this.#namespace.call("TEST.SLOT", "FREEZE", node);
  }

  async thaw(node) {
    await this.#namespace.call("TEST.SLOT", "THAW", node);
  }
}

/** The words of those options that have a value. */
function options(values, names) {
  return names.filter((name) => values[name] !== undefined).flatMap((name) => [name.toUpperCase(), values[name]]);
}
