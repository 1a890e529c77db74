import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    globalSetup: "redlatch/vitest",
    include: ["*.test.js"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    maxWorkers: 2,
  },
});
