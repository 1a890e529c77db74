import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    globalSetup: "redlatch/vitest",
    include: ["examples/*.test.js", "*.test.js"],
    provide: { redlatchOptions: { nodes: 5 } },
  },
});
