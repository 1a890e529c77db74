import type { TestAPI } from "vitest";
import type { Namespace } from "./index.js";

/** Vitest's `test` with the fixture `redlatch`: a namespace of its own for each test. */
export const test: TestAPI<{ redlatch: Namespace }>;
export const it: typeof test;
