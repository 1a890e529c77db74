export default { test: { globalSetup: "redlatch/vitest", include: ["failing/vitest.js"] } };
