// Jest's `testEnvironment: "redlatch/jest"`: a server for each test file, and the global `redlatch`, a namespace for each test.

import { AsyncLocalStorage } from "node:async_hooks";

import { TestEnvironment } from "jest-environment-node";

import { finish } from "./lib/finish.js";
import { start } from "./lib/server.js";

export default class RedlatchEnvironment extends TestEnvironment {
  #options;
  #server;
  // The namespace of the test that runs, and those of tests that run beside it: `test.concurrent`.
  #current;
  #concurrent = new Map();
  #running = new AsyncLocalStorage();

  /** `testEnvironmentOptions: { redlatch: { nodes: 5 } }` are options of `start()`. */
  constructor(config, context) {
    super(config, context);
    this.#options = config.projectConfig.testEnvironmentOptions.redlatch;
  }

  async setup() {
    await super.setup();
    this.#server = await start(this.#options);
    this.global.redlatchServer = this.#server;
    const get = () => this.#running.getStore() ?? this.#current;
    Object.defineProperty(this.global, "redlatch", { configurable: true, enumerable: true, get });
  }

  async teardown() {
    await this.#server?.stop();
    await super.teardown();
  }

  async handleTestEvent(event, state) {
    if (event.name === "run_start") {
      this.#separate(state.rootDescribeBlock);
    } else if (event.name === "test_start" && !event.test.concurrent) {
      this.#current = this.#server.namespace();
    } else if (event.name === "test_done") {
      const namespace = event.test.concurrent ? this.#concurrent.get(event.test) : this.#current;
      const print = (level, text) => this.global.console[level](text);
      if (namespace) await finish(namespace, event.test.name, event.test.errors.length > 0, print);
    }
  }

  /** Gives each concurrent test a namespace of its own, which it sees as the global `redlatch` whenever it goes on. */
  #separate(block) {
    for (const child of block.children) {
      if (child.type === "describeBlock") this.#separate(child);
      if (child.type !== "test" || !child.concurrent) continue;
      const { fn } = child;
      child.fn = () => {
        const namespace = this.#server.namespace();
        this.#concurrent.set(child, namespace);
        return this.#running.run(namespace, () => fn.call(undefined));
      };
    }
  }
}
