// Servers for the tests: processes of redlatch, Redis, Valkey and etcd, each in a directory of its own, which end with the
// tests.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { createClient } from "redis";
import { findBinary } from "redlatch";

const PATIENCE = 30_000;
/** The folder `packages/clients` of the repository. */
export const CLIENTS = process.env.REDLATCH_CLIENTS;

export const PROGRAMS = {
  redis: process.env.REDLATCH_REDIS_SERVER ?? found("redis-server"),
  valkey: process.env.REDLATCH_VALKEY_SERVER ?? found("valkey-server"),
  etcd: process.env.REDLATCH_ETCD ?? found("etcd"),
};

/** A program of the search path, or null. */
export function found(name, more = []) {
  for (const folder of [...(process.env.PATH ?? "").split(path.delimiter), ...more]) {
    const file = path.join(folder, name);
    try {
      accessSync(file, constants.X_OK);
      return file;
    } catch {
      // The next one.
    }
  }
  return null;
}

/** Has a missing program fail the tests if a variable of the environment is set. */
export function mustHave(name, variable) {
  if (!PROGRAMS[name] && process.env[variable]) throw new Error(`there is no ${name}, and ${variable} is set`);
}

/** A directory that is removed at the end. */
export class Folder {
  path = mkdtempSync(path.join(tmpdir(), "redlatch-client-"));

  remove() {
    rmSync(this.path, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** A process in a directory, which may be killed and started again. It is killed at the end. */
export class Process {
  #words;
  #folder;
  #child = null;

  constructor(words, folder) {
    this.#words = words;
    this.#folder = folder;
  }

  start() {
    const log = openSync(path.join(this.#folder, "log"), "a");
    const [program, ...args] = this.#words;
    this.#child = spawn(program, args, { cwd: this.#folder, stdio: ["ignore", log, log] });
    this.#child.unref();
    return this;
  }

  get hasEnded() {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  async kill(signal = "SIGKILL") {
    if (this.hasEnded) return;
    const ended = new Promise((resolve) => this.#child.once("exit", resolve));
    this.#child.kill(signal);
    await ended;
  }
}

/** A server at a Unix socket, and at a port if there is one among the words. */
export class SocketServer {
  #folder = new Folder();
  #process;

  constructor(words) {
    this.#process = new Process(
      words.map((word) => (word === "SOCKET" ? this.socket : word)),
      this.#folder.path,
    );
  }

  get socket() {
    return path.join(this.#folder.path, "s");
  }

  async start(password) {
    this.#process.start();
    await answers({ socket: { path: this.socket }, password }, this.#process);
    return this;
  }

  async restart() {
    await this.#process.kill();
    await this.start();
  }

  async stop() {
    await this.#process.kill();
    this.#folder.remove();
  }
}

/** The servers of `../../peer.py`, which serve nobody. */
export class Peers {
  #child;
  ports;

  /** `port`: of a server that serves. */
  async start(port) {
    const words = [path.join(CLIENTS, "peer.py"), String(port)];
    this.#child = spawn("python3", words, { stdio: ["pipe", "pipe", "inherit"] });
    const [line] = await once(this.#child.stdout, "data");
    this.ports = JSON.parse(line);
    return this;
  }

  stop() {
    this.#child.stdin.end();
  }
}

export function plain(program, port = 0) {
  const words = [program, "--port", String(port), "--unixsocket", "SOCKET", "--save", "", "--loglevel", "warning"];
  return new SocketServer(words).start();
}

export function withJournal() {
  const words = [findBinary(), "--port", "0", "--unixsocket", "SOCKET", "--dir", ".", "--loglevel", "warning"];
  return new SocketServer(words).start();
}

/** A client beside the one under test. It sends what it is told to, once. */
export async function beside(options) {
  const client = createClient({ ...options, disableOfflineQueue: true });
  client.on("error", () => {});
  await client.connect();
  return client;
}

async function answers(options, process) {
  const end = performance.now() + PATIENCE;
  for (;;) {
    const client = createClient({ ...options, socket: { ...options.socket, reconnectStrategy: false } });
    client.on("error", () => {});
    try {
      await client.connect();
      await client.ping();
      return;
    } catch (error) {
      if (process.hasEnded || performance.now() > end) throw new Error(`it does not start: ${error.message}`);
    } finally {
      client.destroy();
    }
    await pause(10);
  }
}

export async function freePorts(count) {
  const listeners = await Promise.all(
    Array.from({ length: count }, () => {
      const listener = net.createServer();
      return new Promise((resolve) => listener.listen(0, "127.0.0.1", () => resolve(listener)));
    }),
  );
  const ports = listeners.map((listener) => listener.address().port);
  await Promise.all(listeners.map((listener) => new Promise((resolve) => listener.close(resolve))));
  return ports;
}

/** A Sentinel of Redis that watches a server under the name `locks`. */
export class Sentinel {
  #folder = new Folder();
  #process;

  async start(watched) {
    [this.port] = await freePorts(1);
    const config = path.join(this.#folder.path, "sentinel.conf");
    writeFileSync(config, `port ${this.port}\nsentinel monitor locks 127.0.0.1 ${watched} 1\n`);
    this.#process = new Process([PROGRAMS.redis, config, "--sentinel"], this.#folder.path).start();
    await answers({ socket: { host: "127.0.0.1", port: this.port } }, this.#process);
    return this;
  }

  async stop() {
    await this.#process.kill();
    this.#folder.remove();
  }
}

/** Whether there is etcd, and a redlatch with the feature for it. */
export function hasNodes() {
  const said = spawnSync(findBinary(), ["check-config", "--cluster-etcd", "http://127.0.0.1:1"], { encoding: "utf8" }).stderr;
  return Boolean(PROGRAMS.etcd) && !said.includes("lacks the feature");
}

/** Two nodes on an etcd, which clients find as Sentinels. */
export class Nodes {
  #folder = new Folder();
  #etcd;
  #nodes = new Map();
  #endpoint;

  async start() {
    const [client, peer, ...ports] = await freePorts(4);
    this.ports = ports;
    this.#endpoint = `http://127.0.0.1:${client}`;
    const peers = `http://127.0.0.1:${peer}`;
    const urls = ["--listen-client-urls", this.#endpoint, "--advertise-client-urls", this.#endpoint];
    const cluster = ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", `m0=${peers}`];
    const words = [PROGRAMS.etcd, "--name", "m0", "--data-dir", path.join(this.#folder.path, "m0"), ...urls, ...cluster];
    this.#etcd = new Process(words, this.#folder.path).start();
    for (const port of ports) this.#start(port);
    await this.leader();
    return this;
  }

  /** The port of the node that leads. */
  async leader() {
    const found = [];
    for (const port of this.ports) {
      found.push(Number((await this.ask(port, "SENTINEL", "get-master-addr-by-name", "mymaster"))[1]));
    }
    return found[0];
  }

  /** Ends the leader, and starts it again as a standby. */
  async killLeader() {
    const port = await this.leader();
    await this.#nodes.get(port).kill();
    this.#start(port);
  }

  /** Asks a node, again and again while connections break. */
  async ask(port, ...words) {
    const end = performance.now() + PATIENCE;
    for (;;) {
      const client = createClient({ socket: { host: "127.0.0.1", port, reconnectStrategy: false } });
      client.on("error", () => {});
      try {
        await client.connect();
        return await client.sendCommand(words);
      } catch (error) {
        if (performance.now() > end) throw error;
      } finally {
        client.destroy();
      }
      await pause(10);
    }
  }

  async stop() {
    for (const node of [...this.#nodes.values(), this.#etcd]) await node.kill();
    this.#folder.remove();
  }

  #start(port) {
    const words = [findBinary(), "--port", String(port), "--cluster-etcd", this.#endpoint];
    this.#nodes.set(port, new Process(words, this.#folder.path).start());
  }
}
