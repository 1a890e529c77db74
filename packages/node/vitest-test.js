// Vitest's `test` with the fixture `redlatch`: a namespace of its own for each test.

import { inject, test as base } from "vitest";

import { finish } from "./lib/finish.js";
import { attach } from "./lib/server.js";

export const test = base.extend({
  redlatch: async ({ task, onTestFinished }, use) => {
    const ready = inject("redlatch");
    if (!ready) throw new Error('no server: the configuration of Vitest needs globalSetup: "redlatch/vitest"');
    const namespace = attach(ready, ready.binary).namespace();
    // Hooks run in reverse order: those of the test, which close its clients, come before this one.
    onTestFinished(() => {
      const hasFailed = task.result?.state === "fail";
      return finish(namespace, task.name, hasFailed, (level, text) => console[level](text));
    });
    await use(namespace);
  },
});

export const it = test;
