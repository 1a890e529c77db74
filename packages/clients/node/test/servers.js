// Servers for the tests: processes of redlatch, each in a directory of its own, which end with the tests.

import { spawn } from "node:child_process";
import { mkdtempSync, openSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { createClient } from "redis";

export const PATIENCE = 30_000;
/** The folder `packages/clients` of the repository. */
export const CLIENTS = process.env.REDLATCH_CLIENTS;

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

  async stop() {
    await this.#process.kill();
    this.#folder.remove();
  }
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
