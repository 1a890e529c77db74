// Jest's `testEnvironment: "redlatch/jest"`: a server for each test file, and the global `redlatch`, a namespace for each test.

import { TestEnvironment } from "jest-environment-node";

import { finish } from "./lib/finish.js";
import { start } from "./lib/server.js";

export default class RedlatchEnvironment extends TestEnvironment {
  #options;
  #server;

  /** `testEnvironmentOptions: { redlatch: { nodes: 5 } }` are options of `start()`. */
  constructor(config, context) {
    super(config, context);
    this.#options = config.projectConfig.testEnvironmentOptions.redlatch;
  }

  async setup() {
    await super.setup();
    this.#server = await start(this.#options);
    this.global.redlatchServer = this.#server;
  }

  async teardown() {
    await this.#server?.stop();
    await super.teardown();
  }

  async handleTestEvent(event) {
    if (event.name === "test_start") {
      this.global.redlatch = this.#server.namespace();
    } else if (event.name === "test_done") {
      const print = (level, text) => this.global.console[level](text);
      await finish(this.global.redlatch, event.test.name, event.test.errors.length > 0, print);
    }
  }
}
