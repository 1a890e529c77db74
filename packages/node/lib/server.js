// The server process: its start, its end, its namespaces.
//
// Rule    a server never outlives the process that started it, however that ends, and does not keep it alive.

import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";

import { findBinary, isForeign } from "./binary.js";
import { Link } from "./connection.js";
import { Namespace } from "./namespace.js";

/** A start or an end that takes longer has failed. */
const PROCESS_MS_MAX = 30_000;

const FOREIGN = "it is for another system or processor: install the package for this one, or set REDLATCH_BINARY";

/** Starts a server on free ports of this machine. Resolves once it accepts connections. */
export async function start({ nodes = 1, args = [], binary = findBinary() } = {}) {
  const flags = ["--port", "auto", "--ready-json", "--enable-test-commands", "local"];
  flags.push("--exit-with-parent", String(process.pid));
  if (nodes > 1) flags.push("--nodes", String(nodes));
  const child = launch(binary, [...flags, ...args]);
  const ready = await readiness(child, binary);
  for (const handle of [child, child.stdout, child.stderr]) handle.unref();
  return new Server(ready, binary, child);
}

/** A server that another process has started; `ready` is its `Server.ready`. It is not stopped from here. */
export function attach(ready, binary) {
  return new Server(ready, binary, null);
}

export class Server {
  #child;
  #binary;
  #control;

  constructor(ready, binary, child) {
    this.ready = ready;
    this.#binary = binary;
    this.#child = child;
    this.#control = new Link(this.host, this.port);
  }

  get url() {
    return this.ready.url;
  }

  get host() {
    return new URL(this.url).hostname;
  }

  get port() {
    return this.ready.port;
  }

  get ports() {
    return this.ready.ports;
  }

  get pid() {
    return this.ready.pid;
  }

  get version() {
    return this.ready.version;
  }

  get binary() {
    return (this.#binary ??= findBinary());
  }

  namespace(name = `node-${randomBytes(8).toString("hex")}`) {
    return new Namespace(this, name);
  }

  namespaces() {
    return this.call("TEST.NAMESPACE", "LIST");
  }

  async drop(name) {
    return (await this.call("TEST.NAMESPACE", "DROP", name)) === 1;
  }

  async call(...words) {
    return (await this.#control.open()).call(...words);
  }

  async stop() {
    this.#control.close();
    const child = this.#child;
    this.#child = null;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    child.ref();
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGTERM");
    const timer = setTimeout(() => child.kill("SIGKILL"), PROCESS_MS_MAX);
    await ended;
    clearTimeout(timer);
  }

  async [Symbol.asyncDispose]() {
    await this.stop();
  }
}

function launch(binary, args) {
  try {
    return spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"] });
  } catch (error) {
    throw new Error(`redlatch does not start: ${reasonOf(error, binary)}`);
  }
}

/** Why a program cannot be started, and what to do. */
function reasonOf(error, binary) {
  const advice = {
    EACCES: "this user may not execute it, or the file system is mounted with noexec",
    ENOENT: "REDLATCH_BINARY, or the option binary, must name a program that is there",
  };
  return `${binary}: ${isForeign(binary) ? FOREIGN : (advice[error.code] ?? error.message)}`;
}

/** The line of JSON that the server prints once it accepts connections, or the reason why it does not. */
function readiness(child, binary) {
  return new Promise((resolve, reject) => {
    let said = "";
    let complaint = "";
    const fail = (reason) => {
      clearTimeout(timer);
      child.kill("SIGKILL");
      // Linux has a shell read a program that it cannot run: what that says is no help.
      const foreign = isForeign(binary) && `${binary}: ${FOREIGN}`;
      reject(new Error(`redlatch does not start: ${foreign || complaint.trim() || reason}`));
    };
    const timer = setTimeout(() => fail(`${binary} said nothing for ${PROCESS_MS_MAX} ms`), PROCESS_MS_MAX);
    child.once("error", (error) => fail(reasonOf(error, binary)));
    child.once("close", (status) => fail(`${binary} ended with status ${status}`));
    child.stderr.on("data", (bytes) => (complaint += bytes));
    child.stdout.on("data", (bytes) => {
      said += bytes;
      if (!said.includes("\n")) return;
      clearTimeout(timer);
      child.removeAllListeners("error").removeAllListeners("close");
      child.stdout.removeAllListeners("data").resume();
      child.stderr.removeAllListeners("data").resume();
      resolve(JSON.parse(said));
    });
  });
}
