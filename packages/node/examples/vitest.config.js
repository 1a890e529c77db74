import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    globalSetup: "redlatch/vitest",
    provide: { redlatchOptions: { nodes: 5 } },
  },
});
