const orders = require("./orders.cjs");

for (const [name, run] of Object.entries(orders)) test(name, run);
