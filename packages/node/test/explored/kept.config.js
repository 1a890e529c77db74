export default { test: { include: ["kept.js"] } };
