// Packs the main package, and the package of this machine's platform around a given program.
//
//   node build.mjs PROGRAM FOLDER
//
// Writes FOLDER/redlatch-VERSION.tgz and FOLDER/redlatch-PLATFORM-VERSION.tgz, as `npm publish` takes them.

import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";

const [program, folder] = process.argv.slice(2);
if (!folder) throw new Error("usage: node build.mjs PROGRAM FOLDER");
const here = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const main = JSON.parse(readFileSync(path.join(here, "package.json"), "utf8"));
const platform = `${process.platform}-${process.arch}`;

const version = execFileSync(program, ["--version"], { encoding: "utf8" }).trim();
if (!version.includes(main.version)) throw new Error(`${program} is '${version}', the package ${main.version}`);
if (!(`@redlatch/${platform}` in main.optionalDependencies)) throw new Error(`no package for ${platform}`);

const stage = path.join(folder, "stage");
rmSync(stage, { recursive: true, force: true });
pack("main", (to) => {
  for (const file of ["package.json", "README.md", "lib"]) cpSync(path.join(here, file), path.join(to, file), { recursive: true });
  for (const name of ["index", "jest", "vitest", "vitest-test"]) {
    for (const kind of [".js", ".d.ts"]) copyFileSync(path.join(here, name + kind), path.join(to, name + kind));
  }
});
pack("platform", (to) => {
  mkdirSync(path.join(to, "bin"));
  copyFileSync(program, path.join(to, "bin/redlatch"));
  chmodSync(path.join(to, "bin/redlatch"), 0o755);
  const manifest = {
    name: `@redlatch/${platform}`,
    version: main.version,
    description: `The program redlatch for ${platform}; the package redlatch uses it`,
    license: main.license,
    os: [process.platform],
    cpu: [process.arch],
    ...libc(),
    files: ["bin", "LICENSE-*"],
    preferUnplugged: true,
  };
  writeFileSync(path.join(to, "package.json"), JSON.stringify(manifest, null, 2) + "\n");
});
rmSync(stage, { recursive: true });

/** The C library that the program needs, as npm names it; none for a static program, which runs with either. */
function libc() {
  const start = readFileSync(program).subarray(0, 4096).toString("latin1");
  const [, loader] = start.match(/\/ld-(linux|musl)/) ?? [];
  return loader ? { libc: [loader === "linux" ? "glibc" : "musl"] } : {};
}

function pack(name, fill) {
  const to = path.join(stage, name);
  mkdirSync(to, { recursive: true });
  for (const license of ["LICENSE-APACHE", "LICENSE-MIT"]) {
    copyFileSync(path.join(here, "../..", license), path.join(to, license));
  }
  fill(to);
  const words = ["pack", "--silent", "--pack-destination", path.resolve(folder)];
  execFileSync("npm", words, { cwd: to, stdio: ["ignore", "inherit", "inherit"] });
}
