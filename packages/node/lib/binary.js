// Where the program `redlatch` is.

import { accessSync, constants } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

/**
 * In this order: the variable REDLATCH_BINARY; the package of this platform, which npm installs beside this one; the
 * search path.
 */
export function findBinary() {
  if (process.env.REDLATCH_BINARY) return process.env.REDLATCH_BINARY;
  const platform = `@redlatch/${process.platform}-${process.arch}`;
  try {
    return createRequire(import.meta.url).resolve(`${platform}/bin/redlatch`);
  } catch {
    // npm was told to leave optional packages out, or there is none for this platform.
  }
  for (const folder of (process.env.PATH ?? "").split(path.delimiter)) {
    const file = path.join(folder, "redlatch");
    if (folder && isProgram(file)) return file;
  }
  throw new Error(
    `there is no program 'redlatch': the package ${platform} is not installed, ` +
      "it is not in PATH, and REDLATCH_BINARY is not set",
  );
}

function isProgram(file) {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
