// The process of the tests of `redlatch-explore`: it gets the variables of each run as a message, and answers whether the test has passed.
//
//   node explored.js vitest|jest MODULE ARGUMENTS
//   node explored.js node FILE ARGUMENTS
//
// Rule    nothing of a run is left to the next one. Vitest has a thread or a process for each, Node a thread. Jest runs in this process,
//         with modules of its own for each run: where a test leaves something running, such as a connection, the process is not used again.
// Rule    it ends with the runner.

import { createRequire } from "node:module";
import { setTimeout as pause } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";

/** What a test has closed at its end is gone within this time. */
const QUIET_WITHIN_MS = 100;
const LOOK_EVERY_MS = 2;

const FRAMEWORKS = { vitest, jest, node };
const [framework, module, ...words] = process.argv.slice(2);
let runTest;
let names = [];

process.on("disconnect", () => process.exit());
process.on("message", async (variables) => {
  for (const name of names) delete process.env[name];
  names = Object.keys(variables);
  Object.assign(process.env, variables);
  let answer = { passed: false, isReusable: false };
  try {
    runTest ??= await FRAMEWORKS[framework](module, words);
    answer = { isReusable: true, ...(await runTest()) };
  } catch (error) {
    process.stderr.write(`${error?.stack ?? error}\n`);
  }
  process.send(answer);
});

/** The arguments are those of `vitest run`. The server of Vite stays, and has what it has transformed. */
async function vitest(module, words) {
  const { createVitest, parseCLI, version } = await import(pathToFileURL(module));
  if (parseInt(version) < 4) {
    throw unusable(`Vitest ${version} keeps the variables of its first run: explore npx vitest run, without --runner, or use Vitest 4`);
  }
  // As its own program does.
  Object.assign(process.env, { TEST: "true", VITEST: "true" });
  process.env.NODE_ENV ??= "test";
  const { filter, options } = parseCLI(["vitest", "run", ...words]);
  const runner = await createVitest("test", { ...options, watch: false });
  let files;
  return async () => {
    const { testModules, unhandledErrors } = await (files ? runner.runTestSpecifications(files) : runner.start(filter));
    files ??= await runner.getRelevantTestSpecifications(filter);
    const passed = testModules.length > 0 && testModules.every((file) => file.ok());
    return { passed: passed && (unhandledErrors.length === 0 || runner.config.dangerouslyIgnoreUnhandledErrors === true) };
  };
}

/** The arguments are those of Jest. What it has transformed it has in its cache. */
async function jest(module, words) {
  process.env.NODE_ENV ??= "test";
  const installed = createRequire(module);
  const { runCLI } = installed("@jest/core");
  const options = { ...(await optionsOf(words, installed)), runInBand: true, watch: false, watchAll: false };
  const projects = options.projects?.length > 0 ? options.projects : [process.cwd()];
  const before = running();
  return async () => {
    const { results } = await runCLI(options, projects);
    return { passed: results.success, isReusable: await isQuiet(before) };
  };
}

/** What the arguments of Jest mean. Jest 29 has the names of its options alone. */
function optionsOf(words, installed) {
  const { buildArgv, yargsOptions } = installed("jest-cli");
  if (buildArgv) return buildArgv(words);
  if (!yargsOptions) throw unusable("Jest 29.7 or newer is needed: explore npx jest, without --runner");
  const yargs = createRequire(installed.resolve("jest-cli"))("yargs");
  return yargs(words).options(yargsOptions).argv;
}

/** An error that is told in a line. */
function unusable(text) {
  return Object.assign(new Error(text), { stack: `redlatch-explore: ${text}` });
}

/** Whether nothing runs but what did before: no connection, no server, no timer. */
async function isQuiet(before) {
  const isMore = () => [...running()].some(([name, count]) => count > (before.get(name) ?? 0));
  const deadline = performance.now() + QUIET_WITHIN_MS;
  while (isMore()) {
    if (performance.now() > deadline) return false;
    await pause(LOOK_EVERY_MS, undefined, { ref: false });
  }
  return true;
}

/** How many there are of each kind of what keeps this process alive. */
function running() {
  const kinds = new Map();
  for (const kind of process.getActiveResourcesInfo()) kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  return kinds;
}

/** A file of node:test, or any program: it runs in a thread, which ends as a process does. */
function node(file, words) {
  return async () => {
    const thread = new Worker(file, { argv: words });
    thread.on("error", (error) => process.stderr.write(`${error?.stack ?? error}\n`));
    const code = await new Promise((resolve) => thread.once("exit", resolve));
    // The last of what it has printed comes after its end.
    await new Promise((resolve) => setImmediate(resolve));
    return { passed: code === 0 };
  };
}
