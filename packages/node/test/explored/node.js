import test from "node:test";

import orders from "./orders.cjs";

for (const [name, run] of Object.entries(orders)) test(name, run);
