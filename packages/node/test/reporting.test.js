// What a failed test says: Vitest and Jest are run on a test that fails.
import { spawnSync } from "node:child_process";
import { describe, expect, test } from "vitest";

import { plainEnvironment } from "./environment.js";

const RUNS = {
  vitest: ["node_modules/vitest/vitest.mjs", "run", "--config", "failing/vitest.config.js"],
  jest: ["node_modules/jest/bin/jest.js", "--config", "failing/jest.config.json"],
};

describe.each(Object.entries(RUNS))("%s", (_, words) => {
  test("a failed test shows its timeline and the faults that never hit", { timeout: 60_000 }, () => {
    const run = spawnSync(process.execPath, words, { encoding: "utf8", env: plainEnvironment() });
    const said = run.stdout + run.stderr;
    expect(run.status).toBe(1);
    expect(said).toMatch(/redlatch timeline of 'fails'\n[^]*lock:shown/);
    expect(said).toMatch(/fault 1 never hit in 'fails': .*SETNX/);
  });
});
