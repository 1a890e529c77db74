import type { TestEnvironment } from "jest-environment-node";
import type { Namespace, Server } from "./index.js";

declare global {
  /** The namespace of the test that runs. */
  var redlatch: Namespace;
  /** The server of this test file. */
  var redlatchServer: Server;
}

/** Jest's environment: a server for each test file, and the global `redlatch`, a namespace for each test. */
export default class RedlatchEnvironment extends TestEnvironment {}
