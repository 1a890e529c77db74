// Where the program `redlatch` is.

import { accessSync, closeSync, constants, openSync, readSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

import { libcOf } from "./libc.js";

/**
 * In this order: the variable REDLATCH_BINARY; a package of this platform, which npm installs beside this one; the
 * search path.
 */
export function findBinary() {
  if (process.env.REDLATCH_BINARY) return process.env.REDLATCH_BINARY;
  const names = packagesFor(process.platform, process.arch, libcOf(process.execPath));
  const program = programOf(process.platform);
  for (const name of names) {
    try {
      return createRequire(import.meta.url).resolve(`${name}/bin/${program}`);
    } catch {
      // npm was told to leave optional packages out, or there is none for this platform.
    }
  }
  for (const folder of (process.env.PATH ?? "").split(path.delimiter)) {
    const file = path.join(folder, program);
    if (folder && isProgram(file)) return file;
  }
  throw new Error(
    `there is no program 'redlatch': the package ${names[0]} is not installed, ` +
      `there is no ${program} in PATH, and REDLATCH_BINARY is not set`,
  );
}

/**
 * The packages whose program runs beside a Node that is linked to this C library, the best one first. The program for musl is
 * static, and runs beside any.
 */
export function packagesFor(platform, arch, libc) {
  const name = `@redlatch/${platform}-${arch}`;
  if (platform !== "linux") return [name];
  return { glibc: [name, `${name}-musl`], musl: [`${name}-musl`] }[libc] ?? [`${name}-musl`, name];
}

/** The name of the program's file. */
export function programOf(platform) {
  return platform === "win32" ? "redlatch.exe" : "redlatch";
}

/** Whether the head of a program names another system or processor than those of Node. A script has no such head. */
export function isForeign(program) {
  const head = Buffer.alloc(20);
  try {
    const file = openSync(program, "r");
    readSync(file, head, 0, head.length, 0);
    closeSync(file);
  } catch {
    return false;
  }
  if (head.toString("latin1", 0, 2) === "MZ") return process.platform !== "win32";
  if (head.readUInt32LE(0) === 0xfeedfacf) return process.platform !== "darwin";
  if (head.toString("latin1", 1, 4) !== "ELF") return false;
  return process.platform !== "linux" || head.readUInt16LE(18) !== { x64: 62, arm64: 183 }[process.arch];
}

function isProgram(file) {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
