import { test } from "vitest";

import orders from "./orders.cjs";

for (const [name, run] of Object.entries(orders)) test(name, run);
