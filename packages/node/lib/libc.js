// The C library that a program of Linux is linked to.

import { closeSync, openSync, readSync } from "node:fs";

/** `glibc` or `musl`, by the loader that the program names; `null` if it is static, or cannot be read. */
export function libcOf(program) {
  // The name of the loader is in the first page.
  const start = Buffer.alloc(4096);
  try {
    const file = openSync(program, "r");
    try {
      readSync(file, start, 0, start.length, 0);
    } finally {
      closeSync(file);
    }
  } catch {
    return null;
  }
  const [, loader] = start.toString("latin1").match(/\/ld-(linux|musl)/) ?? [];
  return loader ? { linux: "glibc", musl: "musl" }[loader] : null;
}
