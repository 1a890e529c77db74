// Packs the main package, and the package of a platform around a given program. Without PLATFORM it is this machine's: a static program
// of Linux, or one that is linked to musl, is that of the package for musl.
//
//   node build.mjs PROGRAM FOLDER [PLATFORM [FIELDS LICENSES PAGE]]
//
// FIELDS are what package.json tells of the project besides, as JSON. LICENSES has those of the crates in the program. PAGE is the
// README, with links that lead somewhere outside this repository.
//
// Writes FOLDER/redlatch-VERSION.tgz and FOLDER/redlatch-PLATFORM-VERSION.tgz, as `npm publish` takes them.

import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, cpSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";

import { programOf } from "./lib/binary.js";
import { libcOf } from "./lib/libc.js";

const here = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const [program, folder, wanted, fields = "{}", licenses, page = path.join(here, "README.md")] = process.argv.slice(2);
if (!folder) throw new Error("usage: node build.mjs PROGRAM FOLDER [PLATFORM [FIELDS LICENSES PAGE]]");
const main = { ...JSON.parse(readFileSync(path.join(here, "package.json"), "utf8")), ...JSON.parse(fields) };
const platform = wanted ?? platformOf(program);
if (!(`@redlatch/${platform}` in main.optionalDependencies)) throw new Error(`no package for ${platform}`);
const [system, processor, musl] = platform.split("-");

if (system === process.platform && processor === process.arch) {
  const version = execFileSync(program, ["--version"], { encoding: "utf8" }).trim();
  if (!version.includes(main.version)) throw new Error(`${program} is '${version}', the package ${main.version}`);
}

const stage = path.join(folder, "stage");
rmSync(stage, { recursive: true, force: true });
pack("main", (to) => {
  writeManifest(to, main);
  copyFileSync(page, path.join(to, "README.md"));
  for (const file of ["explore.js", "lib"]) cpSync(path.join(here, file), path.join(to, file), { recursive: true });
  for (const name of ["index", "jest", "vitest", "vitest-test"]) {
    for (const kind of [".js", ".d.ts"]) copyFileSync(path.join(here, name + kind), path.join(to, name + kind));
  }
});
pack("platform", (to) => {
  mkdirSync(path.join(to, "bin"));
  const name = programOf(system);
  copyFileSync(program, path.join(to, "bin", name));
  if (licenses) copyFileSync(licenses, path.join(to, path.basename(licenses)));
  writeManifest(to, {
    ...JSON.parse(fields),
    name: `@redlatch/${platform}`,
    version: main.version,
    description: `The program redlatch for ${platform}; the package redlatch uses it`,
    license: main.license,
    os: [system],
    cpu: [processor],
    ...(system === "linux" ? { libc: [musl ?? "glibc"] } : {}),
    bin: { redlatch: `bin/${name}` },
    files: ["bin", "LICENSE-*"],
    preferUnplugged: true,
    // npm takes a name with a scope for a private one.
    publishConfig: { access: "public" },
  });
});
rmSync(stage, { recursive: true });

function platformOf(program) {
  const isGlibc = libcOf(program) === "glibc";
  return `${process.platform}-${process.arch}${process.platform === "linux" && !isGlibc ? "-musl" : ""}`;
}

function writeManifest(to, manifest) {
  writeFileSync(path.join(to, "package.json"), JSON.stringify(manifest, null, 2) + "\n");
}

// Modes of which neither the umask nor that of the clone is a part.
function setModes(root) {
  for (const name of readdirSync(root, { recursive: true })) {
    const file = path.join(root, name);
    const isExecutable = statSync(file).isDirectory() || path.dirname(name) === "bin" || name === "explore.js";
    chmodSync(file, isExecutable ? 0o755 : 0o644);
  }
}

function pack(name, fill) {
  const to = path.join(stage, name);
  mkdirSync(to, { recursive: true });
  for (const license of ["LICENSE-APACHE", "LICENSE-MIT"]) {
    copyFileSync(path.join(here, "../..", license), path.join(to, license));
  }
  fill(to);
  setModes(to);
  const words = ["pack", "--silent", "--pack-destination", path.resolve(folder)];
  execFileSync("npm", words, { cwd: to, stdio: ["ignore", "inherit", "inherit"] });
}
