#!/usr/bin/env python3
"""Makes a release: the program with its documents, man pages and completions as a tar.gz, its checksum, and an SBOM.

    packages/release.py [--target TRIPLE] [--npm] [--out DIRECTORY]
    packages/release.py --binary target/release/redlatch --features default

By default the program is built for musl, with all features: one static file that runs on any Linux of its architecture. That
takes the target (`rustup target add x86_64-unknown-linux-musl`) and a C compiler for it (`apt-get install musl-tools`). With
--binary a program that is built already is packed; --features then says with which features. --npm adds the packages for Node: the
one around the static program is that for musl, the one around a program for glibc, as of `--target x86_64-unknown-linux-gnu`, that
for glibc.

The same sources, program and date give the same files: the date is SOURCE_DATE_EPOCH, or that of the last commit.
"""

import argparse
import gzip
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "LICENSE-APACHE", "LICENSE-MIT", "docs", "packages/deploy"]
COMPLETIONS = {"bash": "redlatch.bash", "fish": "redlatch.fish", "zsh": "_redlatch"}
SPDX_OR = re.compile(r"\s*/\s*")


class Failure(Exception):
    """Why there is no release, in one sentence."""


def output(*command: str | pathlib.Path) -> str:
    """What a program prints."""
    try:
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    except FileNotFoundError:
        raise Failure(f"{command[0]} is not installed") from None
    except OSError as error:
        raise Failure(f"{command[0]} cannot be run on this machine: {error.strerror}") from None
    except subprocess.CalledProcessError as error:
        raise Failure(f"'{' '.join(map(str, command))}' exits with {error.returncode}") from None
    return done.stdout


def host() -> str:
    """The triple that cargo builds for by default."""
    return re.search(r"^host: (.+)$", output("rustc", "-vV"), re.MULTILINE)[1]


def feature_flags(features: str) -> list[str]:
    if features in ("all", "default"):
        return ["--all-features"] if features == "all" else []
    return ["--no-default-features", "--features", features]


def build(target: str, features: str) -> pathlib.Path:
    """Builds the program for `target`, and returns it."""
    library = pathlib.Path(output("rustc", "--print", "sysroot").strip()) / "lib/rustlib" / target
    if not library.exists():
        raise Failure(f"Rust's target {target} is not installed: rustup target add {target}")
    name = target.replace("-", "_")
    environment = dict(os.environ)
    if "musl" in target and "musl" not in host() and f"CC_{name}" not in environment:
        if shutil.which("musl-gcc") is None:
            raise Failure(f"the C compiler musl-gcc is missing: apt-get install musl-tools, or set CC_{name}")
        environment[f"CC_{name}"] = "musl-gcc"
    command = ["cargo", "build", "--release", "--locked", "--bin", "redlatch", "--target", target]
    command += feature_flags(features)
    if subprocess.run(command, cwd=ROOT, env=environment).returncode != 0:
        raise Failure(f"cargo cannot build for {target}")
    folder = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return folder / target / "release" / "redlatch"


def is_static(program: pathlib.Path) -> bool:
    """Whether an ELF file of 64 bits asks for no loader: it has no program header PT_INTERP."""
    head = program.read_bytes()[: 64 * 1024]
    if head[:5] != b"\x7fELF\x02":
        raise Failure(f"{program} is not a 64-bit program of Linux")
    (start,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    kinds = [struct.unpack_from("<I", head, start + index * size)[0] for index in range(count)]
    return 3 not in kinds


def has_symbols(program: pathlib.Path) -> bool:
    """Whether an ELF file of 64 bits has a symbol table: a section SHT_SYMTAB."""
    data = program.read_bytes()
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    return any(struct.unpack_from("<I", data, start + index * size + 4)[0] == 2 for index in range(count))


def licence(package: dict) -> list[dict]:
    text = package.get("license")
    # Old manifests write MIT/Apache-2.0 for `MIT OR Apache-2.0`.
    return [{"expression": SPDX_OR.sub(" OR ", text)}] if text else []


def sbom(target: str, features: str, date: str) -> dict:
    """The crates in the program, in the form CycloneDX 1.5: what cargo resolves, without what only tests use."""
    metadata = json.loads(
        output("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target, *feature_flags(features))
    )
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in lock}

    def needs(name: str) -> list[str]:
        is_shipped = lambda edge: any(kind["kind"] != "dev" for kind in edge["dep_kinds"])
        return sorted(edge["pkg"] for edge in nodes[name]["deps"] if is_shipped(edge))

    root = metadata["resolve"]["root"]
    found, open_ = {root}, [root]
    while open_:
        new = [name for name in needs(open_.pop()) if name not in found]
        found.update(new)
        open_ += new

    def purl(name: str) -> str:
        return f"pkg:cargo/{packages[name]['name']}@{packages[name]['version']}"

    def component(name: str) -> dict:
        package = packages[name]
        kind = "application" if name == root else "library"
        made = {"type": kind, "bom-ref": purl(name), "name": package["name"], "version": package["version"]}
        checksum = checksums.get((package["name"], package["version"]))
        if checksum:
            made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        if licence(package):
            made["licenses"] = licence(package)
        return {**made, "purl": purl(name)}

    others = sorted(found - {root}, key=purl)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": date, "component": component(root)},
        "components": [component(name) for name in others],
        "dependencies": [{"ref": purl(name), "dependsOn": [purl(other) for other in needs(name)]} for name in [root, *others]],
    }
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).digest()
    return {**document, "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}"}


def subcommands(program: pathlib.Path) -> list[str]:
    """The names in the list of `--help`."""
    listed = output(program, "--help").split("Commands:\n")[1].split("\n\n")[0]
    return [line.split()[0] for line in listed.splitlines() if line.split()[0] != "help"]


def stage(folder: pathlib.Path, program: pathlib.Path) -> None:
    """Puts everything that a release has into a folder."""
    shutil.copy2(program, folder / "redlatch")
    for name in DOCUMENTS:
        place = folder / name.removeprefix("packages/")
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        else:
            shutil.copy2(ROOT / name, place)
    (folder / "man").mkdir()
    (folder / "man/redlatch.1").write_text(output(program, "man"))
    for name in subcommands(program):
        (folder / f"man/redlatch-{name}.1").write_text(output(program, "man", name))
    (folder / "completions").mkdir()
    for shell, name in COMPLETIONS.items():
        (folder / "completions" / name).write_text(output(program, "completions", shell))


def pack(folder: pathlib.Path, archive: pathlib.Path, seconds: int) -> None:
    """Writes the folder as a tar.gz that has no trace of this machine."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = seconds
        is_program = entry.isdir() or entry.name.endswith("/redlatch")
        entry.mode = 0o755 if is_program else 0o644
        return entry

    with archive.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, seconds) as packed:
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.add(folder, folder.name, recursive=False, filter=plain)
            for path in sorted(folder.rglob("*")):
                tar.add(path, path.relative_to(folder.parent), recursive=False, filter=plain)


def pack_npm(program: pathlib.Path, target: str, out: pathlib.Path) -> list[pathlib.Path]:
    """Packs the package for Node, and that of the platform around the program."""
    if not target.startswith(f"{platform.machine()}-"):
        raise Failure(f"the packages for Node of {target} are packed on a machine of that architecture")
    with tempfile.TemporaryDirectory() as folder:
        output("node", ROOT / "packages/node/build.mjs", program, folder)
        return [pathlib.Path(shutil.copy(package, out)) for package in sorted(pathlib.Path(folder).glob("*.tgz"))]


def release(target: str, binary: pathlib.Path | None, features: str, npm: bool, out: pathlib.Path) -> list[pathlib.Path]:
    """Makes the files of a release in `out`, and returns them."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    program = binary or build(target, features)
    if not program.is_file():
        raise Failure(f"there is no program {program}")
    if "musl" in target and not is_static(program):
        raise Failure(f"{program} is not static")
    if has_symbols(program):
        raise Failure(f"{program} is not stripped: it was not built with --release")
    said = output(program, "--version")
    if f"redlatch={version}\n" not in said:
        raise Failure(f"{program} is not version {version}: {said.strip()}")
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or output("git", "log", "-1", "--format=%ct"))
    date = output("date", "--utc", f"--date=@{seconds}", "+%Y-%m-%dT%H:%M:%SZ").strip()
    name = f"redlatch-{version}-{target}"
    bill = json.dumps(sbom(target, features, date), indent=1) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    files = [out / f"{name}.tar.gz", out / f"{name}.cdx.json"]
    files[1].write_text(bill)
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent) / name
        folder.mkdir()
        stage(folder, program)
        (folder / "sbom.cdx.json").write_text(bill)
        pack(folder, files[0], seconds)
    if npm:
        files += pack_npm(program.absolute(), target, out)
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (out / "SHA256SUMS").write_text("".join(sums))
    return [*files, out / "SHA256SUMS"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", help="triple of the program [default: this machine's, with musl]")
    parser.add_argument("--binary", type=pathlib.Path, help="a program that is built already")
    parser.add_argument("--features", default="all", help="all, default, or a list with commas [default: all]")
    parser.add_argument("--npm", action="store_true", help="pack the packages for Node, too")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target/releases", help="where the files go")
    options = parser.parse_args()
    try:
        target = options.target or (host() if options.binary else f"{platform.machine()}-unknown-linux-musl")
        binary = options.binary and options.binary.absolute()
        for file in release(target, binary, options.features, options.npm, options.out):
            print(file)
    except Failure as failure:
        print(f"release: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
