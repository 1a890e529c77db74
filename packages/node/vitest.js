// Vitest's `globalSetup: "redlatch/vitest"`: one server for the whole run. The fixture of redlatch/vitest/test uses it.

import { start } from "./lib/server.js";

/** The options are those of `start()`, in the configuration as `provide: { redlatchOptions: { nodes: 5 } }`. */
export async function setup(project) {
  const server = await start(project.config.provide?.redlatchOptions);
  project.provide("redlatch", { ...server.ready, binary: server.binary });
  return () => server.stop();
}
