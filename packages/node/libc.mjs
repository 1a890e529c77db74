// Checks that npm installs, of the packages for glibc and for musl, the one for the C library of the machine.
//
//   node libc.mjs GLIBC.tgz MUSL.tgz FOLDER

import assert from "node:assert";
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";

const [glibc, musl, folder] = process.argv.slice(2);
const platform = `linux-${process.arch}`;
const manifest = {
  private: true,
  optionalDependencies: { [`@redlatch/${platform}`]: `file:${glibc}`, [`@redlatch/${platform}-musl`]: `file:${musl}` },
};
for (const [libc, name] of [["glibc", platform], ["musl", `${platform}-musl`]]) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, "package.json"), JSON.stringify(manifest));
  const words = ["install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel", "error", "--os", "linux", "--libc", libc];
  execFileSync("npm", words, { cwd: folder, stdio: "inherit" });
  assert.deepStrictEqual(readdirSync(path.join(folder, "node_modules/@redlatch")), [name], libc);
}
console.log("npm installs the package for the C library of the machine");
