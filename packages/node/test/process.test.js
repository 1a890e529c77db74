// The process: where the program is, what a failed start says, and that no server outlives its parent.
import { spawn } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { attach, findBinary, start } from "redlatch";

test("the program is that of the platform package", async () => {
  expect(process.env.REDLATCH_BINARY).toBeUndefined();
  expect(findBinary()).toContain(`node_modules/@redlatch/${process.platform}-${process.arch}/bin/redlatch`);
});

test("REDLATCH_BINARY overrides it", async () => {
  process.env.REDLATCH_BINARY = "/nowhere/redlatch";
  onTestFinished(() => void delete process.env.REDLATCH_BINARY);
  await expect(start()).rejects.toThrow("/nowhere/redlatch");
});

test("a start that fails says why", async () => {
  await expect(start({ args: ["--no-such-flag"] })).rejects.toThrow(/does not start: .*no-such-flag/);
});

test("a server starts, tells its ports, and stops", async () => {
  const server = await start({ nodes: 3 });
  expect(server.ports).toHaveLength(3);
  expect(server.url).toBe(`redis://127.0.0.1:${server.port}`);
  expect(await attach(server.ready).call("PING")).toBe("PONG");
  await server.stop();
  await server.stop();
  expect(await accepts(server.port)).toBe(false);
});

test("a server ends when its parent is killed", async () => {
  const program = `import { start } from "redlatch";
    console.log((await start()).port);
    setInterval(() => {}, 1000);`;
  const parent = spawn(process.execPath, ["--input-type=module", "-e", program], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(parent.stdout, "data");
  const port = Number(line);
  expect(await accepts(port)).toBe(true);
  parent.kill("SIGKILL");
  await once(parent, "exit");
  while (await accepts(port)) await pause(50);
});

test("a server that is not stopped does not keep its parent alive", async () => {
  const program = `import { start } from "redlatch"; await (await start()).namespace().clock.freeze();`;
  const parent = spawn(process.execPath, ["--input-type=module", "-e", program], { stdio: "inherit" });
  expect((await once(parent, "exit"))[0]).toBe(0);
});

/** Whether somebody listens there. */
function accepts(port) {
  return new Promise((resolve) => {
    const socket = net.connect(port, "127.0.0.1");
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
}
