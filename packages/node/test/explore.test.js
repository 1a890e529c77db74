// The runner for `redlatch explore`: what is found with it, and what its runs leave to each other, which is nothing.
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { findBinary, start } from "redlatch";

import { plainEnvironment } from "./environment.js";

const RUNNER = path.resolve("node_modules/.bin/redlatch-explore");
const TIMEOUT = 300_000;
/** The arguments for one of the tests, and for a file that is not there. */
const FRAMEWORKS = {
  vitest: {
    one: (name) => ["vitest", "--config", "explored/vitest.config.js", "-t", name],
    nothing: ["vitest", "--config", "explored/vitest.config.js", "nothing.js"],
    complaint: "No test files found",
    kept: "kept.js",
    runKept: (folder) => ["npx", "vitest", "run", "--root", folder, "--config", path.resolve("explored/kept.config.js")],
  },
  jest: {
    one: (name) => ["jest", "--config", "explored/jest.config.json", "-t", name],
    nothing: ["jest", "--config", "explored/jest.config.json", "nothing.cjs"],
    complaint: "No tests found",
    kept: "kept.cjs",
    runKept: (folder) => ["npx", "jest", "--rootDir", folder, "--config", '{"testMatch": ["<rootDir>/kept.cjs"]}'],
  },
  node: {
    one: (name) => ["node", `--test-name-pattern=${name}`, "explored/node.js"],
    nothing: ["node", "nothing.js"],
    complaint: "Cannot find module",
    kept: "kept.mjs",
    runKept: (folder) => [process.execPath, "--test", path.join(folder, "kept.mjs")],
  },
};

describe.each(Object.entries(FRAMEWORKS))("%s", (_, { one, nothing, complaint, kept, runKept }) => {
  test("a lock that is deleted without a look is found", { timeout: TIMEOUT }, () => {
    const done = explore(one("wrong"), ["--format", "json", "--case", "paused@SET:1"]);
    expect(done.status, done.stderr).toBe(1);
    expect(JSON.parse(done.stdout)).toMatchObject({ finding: "foreign-delete", case: "paused@SET:1", came: 3 });
  });

  test("the test that is printed fails until the bug is mended", { timeout: TIMEOUT }, () => {
    const folder = mkdtempSync(path.resolve("kept-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const { stdout } = explore(one("wrong"), ["--format", "json", "--case", "delayed@DEL:1"]);
    writeFileSync(path.join(folder, kept), JSON.parse(stdout).test);
    // As npm runs a script: the packages' programs are in the search path.
    const env = { ...plainEnvironment(), PATH: `${path.dirname(RUNNER)}${path.delimiter}${process.env.PATH}` };
    const [program, ...words] = runKept(folder);
    const run = (more) => spawnSync(program, words, { encoding: "utf8", env: { ...env, ...more } });
    const before = run({});
    expect(before.status).not.toBe(0);
    expect(before.stdout + before.stderr).toContain("foreign-delete with delayed@DEL:1: ");
    const after = run({ MENDED: "1" });
    expect(after.status, after.stdout + after.stderr).toBe(0);
  });

  test("each run begins anew, and nothing is found in a test that is right", { timeout: TIMEOUT }, () => {
    const done = explore(one("right"));
    expect(done, done.stderr).toMatchObject({ status: 0, stdout: "" });
    expect(done.stderr).toContain("19 failures met, 0 findings");
  });

  test("a test that fails by itself is shown, as is a file that is not there", { timeout: TIMEOUT }, () => {
    for (const [words, line] of [[one("throws"), "so it is"], [nothing, complaint]]) {
      const done = explore(words);
      expect(done).toMatchObject({ status: 2, stdout: "" });
      expect(done.stderr).toContain("the command already fails without an injected failure");
      expect(done.stderr).toContain(line);
    }
  });

  test("what a test prints is output, and one that ends its process fails its run alone", { timeout: TIMEOUT }, () => {
    const [first, second, ...rest] = answers(one("prints"), {}, {});
    expect(rest).toEqual([]);
    for (const { passed, output } of [first, second]) {
      expect(passed, output).toBe(true);
      for (const line of ["by the console", "by the stream", "by a child"]) expect(output.split(line)).toHaveLength(2);
    }
    expect(answers(one("exits"), {}, {}).map(({ passed }) => passed)).toEqual([false, false]);
  });

  test("a search that is interrupted ends a test that hangs", { timeout: TIMEOUT }, async () => {
    const pids = fileForPids();
    const search = spawn(findBinary(), commandFor(one("hangs")), { env: { ...plainEnvironment(), PIDS: pids } });
    const ended = once(search, "exit");
    while (numbersIn(pids).length === 0) await pause(10);
    search.kill("SIGINT");
    expect(await ended).toEqual([130, null]);
    await isGone(numbersIn(pids)[0]);
  });
});

test("Jest's process serves all runs, unless one has left a connection open", { timeout: TIMEOUT }, async () => {
  const server = await start();
  onTestFinished(() => server.stop());
  for (const [name, processes] of [["closes", 1], ["leaves", 2]]) {
    const pids = fileForPids();
    const env = { PIDS: pids, REDIS_URL: server.url };
    const passed = answers(FRAMEWORKS.jest.one(name), env, env).map((answer) => answer.passed);
    expect(passed).toEqual([true, true]);
    expect(new Set(numbersIn(pids)).size, name).toBe(processes);
    for (const pid of numbersIn(pids)) await isGone(pid);
  }
});

test("without a framework, or with a line of another form, the runner says so in a line", () => {
  const empty = mkdtempSync(path.join(tmpdir(), "redlatch-"));
  onTestFinished(() => rmSync(empty, { recursive: true }));
  const cases = [
    [[], "", "neither vitest nor jest is installed in "],
    [["vitest", "a.test.js"], "", "vitest is not installed in "],
    [["jest", "a.test.js"], "", "jest is not installed in "],
    [["node"], "", "usage: redlatch-explore "],
    [["node", "a.js"], "what\n", "not a line of redlatch explore: what\n"],
    [["node", "a.js"], "{}\n", "not a line of redlatch explore: {}\n"],
  ];
  for (const [words, input, line] of cases) {
    const done = spawnSync(RUNNER, words, { encoding: "utf8", cwd: empty, input });
    expect(done).toMatchObject({ status: 2, stdout: "" });
    expect(done.stderr).toMatch(/^redlatch-explore: .*\n$/);
    expect(done.stderr).toContain(line);
  }
});

/** Explores what the runner runs with these arguments. */
function explore(words, options = ["--format", "json"]) {
  return spawnSync(findBinary(), commandFor(words, options), { encoding: "utf8", env: plainEnvironment() });
}

function commandFor(words, options = []) {
  return ["explore", "--runner", ...options, "--", RUNNER, ...words];
}

/** What the runner answers to a line for each of these sets of variables. */
function answers(words, ...runs) {
  const input = runs.map((env) => `${JSON.stringify({ env })}\n`).join("");
  const done = spawnSync(RUNNER, words, { encoding: "utf8", env: plainEnvironment(), input });
  expect(done).toMatchObject({ status: 0, stderr: "" });
  return done.stdout.trimEnd().split("\n").map((line) => JSON.parse(line));
}

function fileForPids() {
  const folder = mkdtempSync(path.join(tmpdir(), "redlatch-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return path.join(folder, "pids");
}

/** The lines that a test has written to the file so far. */
function numbersIn(file) {
  const text = existsSync(file) ? readFileSync(file, "utf8") : "";
  return text.split("\n").slice(0, -1).map(Number);
}

/** Returns when the process has ended: its signal has been sent. */
async function isGone(pid) {
  const state = () => {
    try {
      return readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /, "")[0];
    } catch {
      return "X";
    }
  };
  while (!"XZ".includes(state())) await pause(10);
}
