import type { TestProject } from "vitest/node";
import type { Ready, StartOptions } from "./index.js";

declare module "vitest" {
  interface ProvidedContext {
    /** The options of `start()`. */
    redlatchOptions?: StartOptions;
    redlatch: Ready & { binary: string };
  }
}

/** Vitest's global setup: one server for the whole run. */
export function setup(project: TestProject): Promise<() => Promise<void>>;
