export default { test: { include: ["explored/vitest.js"] } };
