// The process: where the program is, what a failed start says, and that no server outlives its parent.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { attach, findBinary, start } from "redlatch";
import { packagesFor } from "./node_modules/redlatch/lib/binary.js";
import { libcOf } from "./node_modules/redlatch/lib/libc.js";

test("the program is that of the platform package", async () => {
  expect(process.env.REDLATCH_BINARY).toBeUndefined();
  expect(findBinary()).toContain(`node_modules/@redlatch/${process.platform}-${process.arch}/bin/redlatch`);
});

test("of two platform packages, that for the C library of Node is taken", () => {
  expect(packagesFor("linux", "x64", "glibc")).toEqual(["@redlatch/linux-x64", "@redlatch/linux-x64-musl"]);
  expect(packagesFor("linux", "x64", "musl")).toEqual(["@redlatch/linux-x64-musl"]);
  expect(packagesFor("linux", "arm64", null)[0]).toBe("@redlatch/linux-arm64-musl");
  expect(packagesFor("darwin", "arm64", null)).toEqual(["@redlatch/darwin-arm64"]);
});

test("the C library of a program is that of its loader", () => {
  const folder = mkdtempSync(path.join(tmpdir(), "redlatch-libc-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const program = (text) => {
    const file = path.join(folder, "program");
    writeFileSync(file, `\x7fELF${"\0".repeat(700)}${text}\0${"\0".repeat(8000)}/ld-linux-x86-64.so.2`);
    return libcOf(file);
  };
  expect(program("/lib64/ld-linux-x86-64.so.2")).toBe("glibc");
  expect(program("/lib/ld-musl-x86_64.so.1")).toBe("musl");
  expect(program("")).toBe(null);
  expect(libcOf(path.join(folder, "nothing"))).toBe(null);
});

test("REDLATCH_BINARY overrides it", async () => {
  process.env.REDLATCH_BINARY = "/nowhere/redlatch";
  onTestFinished(() => void delete process.env.REDLATCH_BINARY);
  await expect(start()).rejects.toThrow("/nowhere/redlatch");
});

test("a start that fails says why", async () => {
  await expect(start({ args: ["--no-such-flag"] })).rejects.toThrow(/does not start: .*no-such-flag/);
  await expect(start({ binary: "/no/such/redlatch" })).rejects.toThrow(/no.such.redlatch: .* must name a program/);
  const folder = mkdtempSync(path.join(tmpdir(), "redlatch größer "));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = path.join(folder, "redlatch");
  const head = Buffer.alloc(64);
  head.write("\x7fELF", "latin1");
  head[18] = 40; // 32-bit ARM
  writeFileSync(file, head, { mode: 0o644 });
  await expect(start({ binary: file })).rejects.toThrow(/for another system or processor/);
  chmodSync(file, 0o755);
  await expect(start({ binary: file })).rejects.toThrow(/for another system or processor/);
  writeFileSync(path.join(folder, "script"), "#!/bin/sh\n", { mode: 0o644 });
  await expect(start({ binary: path.join(folder, "script") })).rejects.toThrow(/may not execute it/);
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
