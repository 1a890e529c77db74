// A process ends when its client is closed, whatever locks it holds or waits for.

import { spawn } from "node:child_process";
import { test } from "redlatch/vitest/test";
import { expect } from "vitest";

const CLIENTS = {
  ioredis: `
    import { Redis } from "ioredis";
    const client = new Redis(url);
    const close = () => client.quit();`,
  "node-redis": `
    import { createClient } from "redis";
    const client = createClient({ url });
    await client.connect();
    const close = () => client.close();`,
  "node-redis 4": `
    import { createClient } from "redis4";
    const client = createClient({ url });
    await client.connect();
    const close = () => client.quit();`,
};

for (const [name, client] of Object.entries(CLIENTS)) {
  test(`with a lock, a session and a wait, by ${name}`, async ({ redlatch }) => {
    const program = `
      import { Locks } from "redlatch-client";
      const url = process.argv[1];${client}
      const locks = new Locks(client);
      await locks.lock("lease").acquire();
      await locks.lock("session", { session: true, delay: 60_000 }).acquire();
      locks.lock("lease", { wait: Infinity }).acquire();
      while ((await locks.lockedBy("lease")).waiters !== 1);
      console.log("closed");
      await close();`;
    expect(await run(program, redlatch.url)).toEqual({ status: 0, said: "closed\n" });
  });

  test(`a lock that is waited for keeps it alive, by ${name}`, async ({ redlatch }) => {
    await redlatch.call("SET", "k", "other", "PX", 500);
    const program = `
      import { Locks } from "redlatch-client";
      const url = process.argv[1];${client}
      const held = await new Locks(client).lock("k", { wait: Infinity }).acquire();
      console.log(await held.release());
      await close();`;
    expect(await run(program, redlatch.url)).toEqual({ status: 0, said: "true\n" });
  });
}

async function run(program, url) {
  const words = ["--input-type=module", "-e", program, url];
  const child = spawn(process.execPath, words, { stdio: ["ignore", "pipe", "inherit"] });
  let said = "";
  child.stdout.on("data", (bytes) => (said += bytes));
  const status = await new Promise((resolve) => child.once("close", resolve));
  return { status, said };
}
