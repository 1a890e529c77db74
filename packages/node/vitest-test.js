// Vitest's `test` with the fixture `redlatch`: a namespace of its own for each test.

import { inject, test as base } from "vitest";

import { finish } from "./lib/finish.js";
import { attach } from "./lib/server.js";

export const test = base.extend({
  redlatch: async ({ task }, use) => {
    const ready = inject("redlatch");
    if (!ready) throw new Error('no server: the configuration of Vitest needs globalSetup: "redlatch/vitest"');
    const namespace = attach(ready, ready.binary).namespace();
    await use(namespace);
    await finish(namespace, task.name, task.result?.state === "fail", (level, text) => console[level](text));
  },
});

export const it = test;
