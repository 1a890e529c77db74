#!/usr/bin/env node
// A runner for `redlatch explore`: it stays, and runs the test once for each line that it reads.
//
//   redlatch explore --runner -- npx redlatch-explore vitest tests/orders.test.js -t pay
//
// Owns    the process of the tests, which lib/explored.js is, and the file of what that prints. The file has no name, and ends with both.
// Rule    the process serves all runs. One that ends within a run fails it, and the next run has another.
// Rule    a line of another form ends the runner.

import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { fstatSync, ftruncateSync, openSync, readSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const EXPLORED = fileURLToPath(new URL("lib/explored.js", import.meta.url));
/** What is imported of each framework. Node brings its own. */
const MODULES = { vitest: "vitest/node", jest: "jest", node: null };
const USAGE = "usage: redlatch-explore [vitest | jest] ARGUMENTS, or redlatch-explore node [OPTIONS OF NODE] FILE [ARGUMENTS]";
/** Bytes of the end of a run's output that are told. */
const OUTPUT_BYTES_MAX = 8192;

let tests = null;
const command = commandOf(process.argv.slice(2));
const output = nameless();

for await (const line of createInterface({ input: process.stdin })) {
  const answer = await run(variablesOf(line));
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
tests?.kill("SIGKILL");

/** Runs the test once with these variables: whether it has passed, and the end of what it has printed. */
async function run(variables) {
  ftruncateSync(output);
  tests ??= start();
  const { passed, isReusable, end } = await answerOf(tests, variables);
  if (end) return { passed: false, output: `${printed()}redlatch-explore: the process of the test has ended with ${end}\n` };
  if (!isReusable) {
    const ended = once(tests, "exit");
    tests.kill("SIGKILL");
    await ended;
  }
  return { passed, output: printed() };
}

/** What the process of the tests answers to the variables of a run, or how it has ended. */
function answerOf(child, variables) {
  return new Promise((resolve) => {
    const settle = (answer) => {
      child.off("message", settle).off("exit", end);
      resolve(answer);
    };
    const end = (code, signal) => settle({ end: signal ?? `exit code ${code}` });
    child.on("message", settle).on("exit", end);
    // One that has ended gets nothing, which its end says.
    child.send(variables, () => {});
  });
}

/** Starts the process of the tests. Its standard input is empty, and what it prints goes to the file. */
function start() {
  const child = spawn(process.execPath, command, { stdio: ["ignore", output, output, "ipc"] });
  child.once("exit", () => {
    if (tests === child) tests = null;
  });
  return child;
}

/** The arguments of Node for the process of the tests. */
function commandOf(words) {
  const isNamed = words[0] in MODULES;
  const framework = isNamed ? words[0] : Object.keys(MODULES).find((name) => MODULES[name] && find(MODULES[name]));
  const rest = words.slice(isNamed ? 1 : 0);
  if (!framework) leave(`neither vitest nor jest is installed in ${process.cwd()}; for node:test say redlatch-explore node FILE`);
  if (framework === "node") {
    const file = rest.findIndex((word) => !word.startsWith("-"));
    if (file === -1) leave(USAGE);
    return [...rest.slice(0, file), EXPLORED, "node", path.resolve(rest[file]), ...rest.slice(file + 1)];
  }
  const module = find(MODULES[framework]);
  if (!module) leave(`${framework} is not installed in ${process.cwd()}`);
  return [EXPLORED, framework, module, ...rest];
}

/** The file of a module of the project in this folder; null if there is none. */
function find(module) {
  try {
    return createRequire(path.resolve("package.json")).resolve(module);
  } catch {
    return null;
  }
}

function variablesOf(line) {
  try {
    return Object.fromEntries(Object.entries(JSON.parse(line).env));
  } catch {
    return leave(`not a line of redlatch explore: ${line}`);
  }
}

function leave(text) {
  tests?.kill("SIGKILL");
  process.stderr.write(`redlatch-explore: ${text}\n`);
  process.exit(2);
}

/** A file that is open, and in no folder. */
function nameless() {
  const name = path.join(tmpdir(), `redlatch-${randomBytes(8).toString("hex")}`);
  const file = openSync(name, "ax+", 0o600);
  rmSync(name);
  return file;
}

/** The end of what the process of the tests has printed. */
function printed() {
  const { size } = fstatSync(output);
  const bytes = Buffer.alloc(Math.min(size, OUTPUT_BYTES_MAX));
  readSync(output, bytes, 0, bytes.length, size - bytes.length);
  return bytes.toString();
}
