#!/usr/bin/env python3
"""Installs each file of a release in a fresh place, and uses it once: a server starts, a lock is taken and released.

    packages/deploy/installed.py [--windows-python PYTHON.EXE] [--windows-node NODE.EXE] [--windows-java JAVA.EXE] RELEASE

RELEASE is the directory that packages/release.py has written. A file for a platform that this machine cannot run is looked at: its
names, tags, checksums, and the head of its program. Programs for Windows run under Wine, static ones for the other processor under qemu,
if they are here. Wine before 9 lacks bcryptprimitives.dll: .ci/run puts one into its system32. Every path has spaces and letters
beyond ASCII. Needs no more than Python; what it installs with (pip, npm, go, dpkg, rpm, ruby, javac, mvn) may be missing, and is told then.
Lock clients are installed with the client libraries, which come from the registries of packages.
"""

import argparse
import base64
import contextlib
import csv
import dataclasses
import fnmatch
import hashlib
import io
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator

import cluster

HERE = pathlib.Path(__file__).resolve().parent
# The licences of the crates, wherever a program is.
THIRD_PARTY = "LICENSE-THIRD-PARTY"
MACHINE = {"x86_64": "x86_64", "AMD64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}[platform.machine()]
OTHER_NAMES = {"amd64": "x86_64", "arm64": "aarch64", "x64": "x86_64"}
LOCK_IN_PYTHON = """
import redlatch
with redlatch.Server() as server:
    assert server.call("LOCK.ACQUIRE", "check:lock", "check", "LEASE", "30000")
    assert server.call("LOCK.RELEASE", "check:lock", "check") == 1
    print(server.binary)
"""
LOCK_IN_JAVA = """
import dev.redlatch.junit.RedlatchServer;

class Lock {
    public static void main(String[] none) {
        try (RedlatchServer server = RedlatchServer.start(1)) {
            Object granted = server.call("LOCK.ACQUIRE", "check:lock", "check", "LEASE", "30000");
            Object released = server.call("LOCK.RELEASE", "check:lock", "check");
            if (granted == null || !released.equals(1L)) {
                throw new IllegalStateException(granted + ", " + released);
            }
        }
    }
}
"""
# What the lock clients do, each given the port of a server.
CLIENT_IN_PYTHON = """
import sys, redis
from redlatch_client import Locks
locks = Locks(redis.Redis(port=int(sys.argv[1])))
with locks.lock("check:lock") as held:
    assert held.token == 1 and locks.locked_by("check:lock") is not None
locks.close()
"""
CLIENT_IN_NODE = """
import { Redis } from "ioredis";
import { Locks } from "redlatch-client";
const client = new Redis({ port: Number(process.argv[2]) });
const locks = new Locks(client);
const held = await locks.lock("check:lock").acquire();
const holder = await locks.lockedBy("check:lock");
if (held.token !== 1 || holder === null || !(await held.release())) throw new Error(`${held.token}, ${holder}`);
await locks.close();
client.disconnect();
"""
CLIENT_IN_GO = """
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"
	"redlatch.dev/locks"
	_ "redlatch.dev/locks/gocronlocks"
	_ "redlatch.dev/redlatchtest"
)

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	l := locks.New(client)
	held, err := l.Lock("check:lock", locks.Options{}).Acquire(ctx)
	if err == nil {
		_, err = held.Release(ctx)
	}
	if err != nil || held.Token() != 1 {
		fmt.Println(held, err)
		os.Exit(1)
	}
	l.Close()
}
"""
CLIENT_IN_JAVA = """
import dev.redlatch.client.Held;
import dev.redlatch.client.JedisLocks;
import dev.redlatch.client.Locks;
import redis.clients.jedis.JedisPooled;

class Lock {
    public static void main(String[] port) throws Exception {
        try (JedisPooled client = new JedisPooled("127.0.0.1", Integer.parseInt(port[0]));
                Locks locks = JedisLocks.over(client); Held held = locks.lock("check:lock").acquire()) {
            if (held.token().getAsLong() != 1 || locks.lockedBy("check:lock").isEmpty()) {
                throw new IllegalStateException(held.token().toString());
            }
        }
    }
}
"""
LOCK_IN_NODE = """
import { writeFileSync } from "node:fs";
import { start } from "redlatch";
const server = await start();
const granted = await server.call("LOCK.ACQUIRE", "check:lock", "check", "LEASE", 30000);
const released = await server.call("LOCK.RELEASE", "check:lock", "check");
await server.stop();
writeFileSync("said.json", JSON.stringify({ granted, released, binary: server.binary }));
"""


@dataclasses.dataclass(frozen=True)
class Windows:
    """What runs programs for Windows here. Each may be missing."""

    wine: str | None = None
    python: pathlib.Path | None = None
    node: pathlib.Path | None = None
    java: pathlib.Path | None = None


@dataclasses.dataclass(frozen=True)
class Place:
    """A release, and a fresh folder for one of its files."""

    release: pathlib.Path
    folder: pathlib.Path
    windows: Windows


def plain_environment() -> dict[str, str]:
    """Without settings that are meant for another server, and REDLATCH_BINARY."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("REDLATCH_", "PYTHONPATH"))}


def run(*command: str | pathlib.Path, cwd: pathlib.Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, encoding="utf-8", errors="replace")
    assert done.returncode == 0, f"{' '.join(map(str, command))}: exits with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def refused(words: str, *command: str | pathlib.Path, cwd: pathlib.Path | None = None) -> None:
    """The command fails, and says why."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, encoding="utf-8", errors="replace")
    said = done.stdout + done.stderr
    assert done.returncode != 0 and words in said, f"{' '.join(map(str, command))}: {said}"


@contextlib.contextmanager
def serving(*command: str | pathlib.Path, env: dict[str, str] | None = None) -> Iterator[int]:
    """Starts the server on a free port, which is returned, and ends it."""
    words = [*command, "--port", "auto", "--ready-json"]
    with tempfile.TemporaryFile("w+") as errors:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": errors}
        process = subprocess.Popen(words, env=env, encoding="utf-8", **pipes)
        try:
            line = process.stdout.readline()
            if not line.startswith("{"):
                process.kill()
                process.wait()
                errors.seek(0)
                raise AssertionError(f"{command} does not start: {line}{errors.read()}")
            yield json.loads(line)["port"]
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


def use(*command: str | pathlib.Path, env: dict[str, str] | None = None) -> None:
    """A server takes a lock and releases it."""
    with serving(*command, env=env) as port:
        connection = cluster.Connection(port)
        assert connection.ask("LOCK.ACQUIRE", "check:lock", "check", "LEASE", 30_000) is not None, command
        assert connection.ask("LOCK.RELEASE", "check:lock", "check") == 1, command


def use_client(place: Place, *command: str | pathlib.Path, env: dict[str, str] | None = None) -> str:
    """A program of a lock client, which is given the port of a server of this release, takes a lock."""
    archive = next((file for file in place.release.glob("redlatch-*.tar.gz") if "linux" in file.name and is_here(file.name)), None)
    if archive is None:
        return "installed, not used: the release has no program for this machine"
    shutil.unpack_archive(archive, place.folder / "server", filter="data")
    (program,) = place.folder.glob("server/*/redlatch")
    with serving(program) as port:
        run(*command, str(port), cwd=place.folder, env=env)
    return "used"


def is_here(name: str, system: str = "linux") -> bool:
    """Whether a file with this name has a program for this machine's processor and this system."""
    machine = next((machine for word, machine in OTHER_NAMES.items() if word in name), None)
    machine = next((machine for machine in ("x86_64", "aarch64") if machine in name), machine)
    return machine == MACHINE and platform.system().lower() == system


def check_head(data: bytes, name: str) -> None:
    """The program is for the platform that the name of the file has."""
    kinds = {b"\x7fELF": "linux", b"MZ": "windows", b"\xcf\xfa\xed\xfe": "macos"}
    (system,) = [system for head, system in kinds.items() if data.startswith(head)]
    marks = {"windows": ("windows", "win32", "win_"), "macos": ("darwin", "macos")}
    named = next((system for system, words in marks.items() if any(word in name for word in words)), "linux")
    assert system == named, f"{name} has a program of {system}"
    if system == "linux":
        machine = {62: "x86_64", 183: "aarch64"}[int.from_bytes(data[18:20], "little")]
        assert machine in name or any(word in name for word, each in OTHER_NAMES.items() if each == machine), name


def use_for_windows(place: Place, program: pathlib.Path) -> str:
    if place.windows.wine is None or MACHINE != "x86_64":
        return "looked at: Wine is not here"
    use(place.windows.wine, program)
    return "used under Wine"


def check_archive(file: pathlib.Path, place: Place) -> str:
    """A tar.gz or zip: documents, completions, and the program, which starts."""
    shutil.unpack_archive(file, place.folder, **({} if file.suffix == ".zip" else {"filter": "data"}))
    (root,) = place.folder.iterdir()
    wanted = ["README.md", "LICENSE-MIT", "LICENSE-APACHE", THIRD_PARTY, "docs/operations.md", "deploy/redlatch.service", "sbom.cdx.json"]
    of_unix = ["man/redlatch.1", "man/redlatch-run.1", "completions/_redlatch"]
    for name in wanted + (["completions/_redlatch.ps1"] if file.suffix == ".zip" else of_unix):
        assert (root / name).stat().st_size > 0, name
    bill = json.loads((root / "sbom.cdx.json").read_text())
    # Crates of this repository are in no registry, and so have no hash.
    linked = {f"{each['name']} {each['version']}" for each in bill["components"] if "hashes" in each}
    texts = (root / THIRD_PARTY).read_text().split("=" * 80)[1:]
    named = {name for text in texts for name in text.strip().split("\n")[0].split(", ")}
    assert linked and linked <= named, linked - named
    run("bash", "-n", root / "completions/redlatch.bash")
    program = root / ("redlatch.exe" if file.suffix == ".zip" else "redlatch")
    check_head(program.read_bytes(), file.name)
    if file.suffix == ".zip":
        return use_for_windows(place, program)
    if is_here(file.name) and "linux" in file.name:
        use(program)
        return "used"
    emulator = "linux" in file.name and shutil.which("qemu-aarch64-static" if "aarch64" in file.name else "qemu-x86_64-static")
    if not emulator:
        return "looked at: it is for another machine"
    use(emulator, program)
    return "used, emulated"


def check_record(file: pathlib.Path) -> list[str]:
    """A wheel has the files that its RECORD lists, of these digests, the tags of its name, types and licences. Returns their names."""
    with zipfile.ZipFile(file) as wheel:
        names = {name.split("/")[-1]: name for name in wheel.namelist()}
        lines = list(csv.reader(io.StringIO(wheel.read(names["RECORD"]).decode())))
        assert sorted(line[0] for line in lines) == sorted(wheel.namelist()), file.name
        for name, digest, size in lines:
            data = wheel.read(name)
            made = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert name == names["RECORD"] or (digest, size) == (f"sha256={made}", str(len(data))), name
        tags = [line[5:] for line in wheel.read(names["WHEEL"]).decode().splitlines() if line.startswith("Tag: ")]
        python, abi, platforms = file.stem.split("-")[2:]
        assert tags == [f"{python}-{abi}-{each}" for each in platforms.split(".")], (tags, file.name)
        assert {"py.typed", "LICENSE-MIT", "LICENSE-APACHE"} <= set(names)
        return wheel.namelist()


def check_program_of(file: pathlib.Path) -> None:
    """A wheel around a program has that, for its platform, and its bill of materials."""
    names = check_record(file)
    (program,) = [name for name in names if ".data/scripts/" in name]
    assert all(any(name.endswith(f"/{end}") for name in names) for end in ["redlatch.cdx.json", f"licenses/{THIRD_PARTY}"]), names
    with zipfile.ZipFile(file) as wheel:
        check_head(wheel.read(program), file.name)


def check_wheel(file: pathlib.Path, place: Place) -> str:
    """A wheel: pip installs it into a fresh environment, and the module finds its program; or pip refuses it here."""
    check_program_of(file)
    if "win_amd64" in file.name and place.windows.python and place.windows.wine:
        return check_wheel_for_windows(file, place)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    install = ["install", "--quiet", "--no-index", "--no-cache-dir", file]
    if not is_here(file.name) or "macosx" in file.name or "win_" in file.name:
        refused("is not a supported wheel on this platform", *pip, *install, "--dry-run")
        return "looked at, and refused by pip on this machine"
    environment = place.folder / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    run(*pip, "--python", environment / "bin/python", *install)
    binary = run(environment / "bin/python", "-c", LOCK_IN_PYTHON, env=plain_environment()).strip()
    assert pathlib.Path(binary) == environment / "bin/redlatch", binary
    run(environment / "bin/redlatch", "--version")
    return "used"


def check_client_for_python(file: pathlib.Path, place: Place) -> str:
    """The wheel of the client: pip installs it with redis-py."""
    check_record(file)
    environment = place.folder / "venv"
    run(sys.executable, "-m", "venv", environment)
    run(environment / "bin/python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", file)
    return use_client(place, environment / "bin/python", "-c", CLIENT_IN_PYTHON, env=plain_environment())


def check_client_for_node(file: pathlib.Path, place: Place) -> str:
    if shutil.which("npm") is None:
        return "skipped: Node is not installed"
    project = place.folder / "project"
    run(*npm_install(project, file, pathlib.Path("ioredis")), cwd=project)
    (project / "lock.js").write_text(CLIENT_IN_NODE)
    return use_client(place, "node", project / "lock.js", env=plain_environment())


def check_client_for_go(file: pathlib.Path, place: Place) -> str:
    """The modules: unpacked, the folder is a module proxy. The module cache is a fresh one, too."""
    if shutil.which("go") is None:
        return "skipped: Go is not installed"
    shutil.unpack_archive(file, place.folder / "proxy")
    project = place.folder / "project"
    project.mkdir()
    (project / "go.mod").write_text("module check\n")
    (project / "main.go").write_text(CLIENT_IN_GO)
    proxy = f"{(place.folder / 'proxy').as_uri()},{run('go', 'env', 'GOPROXY').strip()}"
    fresh = {"GOPROXY": proxy, "GONOSUMDB": "redlatch.dev/*", "GOMODCACHE": str(place.folder / "modules"), "GOFLAGS": "-modcacherw"}
    environment = {**plain_environment(), **fresh}
    version = f"v{file.stem.split('-')[2]}"
    modules = [f"redlatch.dev/{name}@{version}" for name in ["locks", "locks/gocronlocks", "redlatchtest"]]
    run("go", "get", *modules, cwd=project, env=environment)
    run("go", "build", "-o", place.folder / "lock", ".", cwd=project, env=environment)
    return use_client(place, place.folder / "lock", env=environment)


def check_client_for_java(file: pathlib.Path, place: Place) -> str:
    """The jar, with the libraries that its POM names."""
    if shutil.which("mvn") is None:
        return "skipped: Maven is not installed"
    libraries = place.folder / "libraries"
    words = ["dependency:build-classpath", f"-Dmdep.outputFile={libraries}"]
    run("mvn", "--batch-mode", "--quiet", "--file", file.with_suffix(".pom"), *words, cwd=place.folder)
    (place.folder / "Lock.java").write_text(CLIENT_IN_JAVA)
    path = os.pathsep.join([str(file), libraries.read_text()])
    return use_client(place, "java", "-cp", path, place.folder / "Lock.java", env=plain_environment())


def check_wheel_for_windows(file: pathlib.Path, place: Place) -> str:
    """As check_wheel(), with Python for Windows: the fresh environment is a copy of it."""
    windows, folder = place.windows, place.folder / "python"
    shutil.copytree(windows.python.parent, folder)
    python = [windows.wine, folder / windows.python.name]
    run(*python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-warn-script-location", file)
    script = place.folder / "lock.py"
    script.write_text(LOCK_IN_PYTHON.lstrip())
    binary = run(*python, script, env=plain_environment()).strip()
    assert binary.lower().endswith("python\\scripts\\redlatch.exe"), binary
    return "used under Wine, by Python for Windows"


def check_sdist(file: pathlib.Path, place: Place) -> str:
    """The sources: cargo finds every file that the manifests name. Building them takes minutes."""
    shutil.unpack_archive(file, place.folder, filter="data")
    (root,) = place.folder.iterdir()
    for name in ["PKG-INFO", "pyproject.toml", "Cargo.lock", "LICENSE-MIT", "packages/python/python/redlatch/py.typed"]:
        assert (root / name).is_file(), name
    run("cargo", "metadata", "--locked", "--offline", "--no-deps", "--format-version", "1", cwd=root)
    return "looked at: cargo reads its manifests"


def npm_install(project: pathlib.Path, *packages: pathlib.Path) -> list[str | pathlib.Path]:
    project.mkdir(exist_ok=True)
    (project / "package.json").write_text('{ "private": true, "type": "module" }\n')
    return ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--omit=optional", *packages]


def check_npm(file: pathlib.Path, place: Place) -> str:
    """A package of a platform with the main one; npm refuses it on another platform."""
    kind = check_npm_manifest(file)
    try_publishing(file)
    (main,) = place.release.glob("redlatch-[0-9]*[0-9].tgz")
    project = place.folder / "project"
    by_wine = kind.startswith("win32") and place.windows.node and place.windows.wine
    if not by_wine and not (kind.startswith("linux") and is_here(file.name)):
        refused("EBADPLATFORM", *npm_install(project, main, file), cwd=project)
        return "looked at, and refused by npm on this machine"
    # npm would refuse the one for musl beside glibc, whose program runs all the same.
    run(*npm_install(project, main, file), *(["--force"] if by_wine or kind.endswith("-musl") else []), cwd=project)
    use_in_node(project, *([place.windows.wine, place.windows.node] if by_wine else ["node"]), kind=kind)
    return "used under Wine, by Node for Windows" if by_wine else "used"


def try_publishing(file: pathlib.Path) -> None:
    """npm would take the package, but for the login."""
    run("npm", "publish", "--dry-run", file)


def check_npm_manifest(file: pathlib.Path) -> str:
    """The manifest says for which platform the program is. Returns that, as the package is named."""
    with tarfile.open(file) as tar:
        (program,) = [name for name in tar.getnames() if name.startswith("package/bin/")]
        manifest = json.load(tar.extractfile("package/package.json"))
        data = tar.extractfile(program).read()
        assert f"package/{THIRD_PARTY}" in tar.getnames() and manifest["publishConfig"] == {"access": "public"}, manifest
    kind = manifest["name"].removeprefix("@redlatch/")
    check_head(data, kind)
    assert [*manifest["os"], *manifest["cpu"]] == kind.split("-")[:2], manifest
    if kind.startswith("linux"):
        libc = "musl" if kind.endswith("-musl") else "glibc"
        assert manifest["libc"] == [libc] and (b"/ld-linux" in data[:4096]) == (libc == "glibc"), manifest
    return kind


def use_in_node(project: pathlib.Path, *node: str | pathlib.Path, kind: str) -> None:
    """A script takes a lock. It writes to files: under Wine 8, Node cannot write to pipes."""
    (project / "lock.js").write_text(LOCK_IN_NODE.lstrip())
    with (project / "output").open("w") as output:
        done = subprocess.run([*node, "lock.js"], cwd=project, env=plain_environment(), stdout=output, stderr=output)
    assert done.returncode == 0, (project / "output").read_text(errors="replace")
    said = json.loads((project / "said.json").read_text())
    assert said["granted"] and said["released"] == 1 and kind in said["binary"], said


def check_main_package(file: pathlib.Path, _place: Place) -> str:
    try_publishing(file)
    with tarfile.open(file) as tar:
        manifest = json.load(tar.extractfile("package/package.json"))
    assert "scripts" not in manifest, manifest
    assert {"@redlatch/win32-x64", "@redlatch/linux-arm64-musl"} <= set(manifest["optionalDependencies"]), manifest
    return "used with those of the platforms"


def check_jar(file: pathlib.Path, place: Place) -> str:
    """A jar with a program: the classes of packages/java find it in the class path, and use it."""
    with zipfile.ZipFile(file) as jar:
        (program,) = [name for name in jar.namelist() if name.split("/")[-1] in ("redlatch", "redlatch.exe")]
        assert {"META-INF/MANIFEST.MF", "META-INF/LICENSE-MIT", "META-INF/LICENSE-APACHE", f"META-INF/{THIRD_PARTY}"} <= set(jar.namelist())
        check_head(jar.read(program), file.name)
    assert program.split("/")[2] in file.name, program
    by_wine = "windows" in file.name and place.windows.java and place.windows.wine
    if not by_wine and ("linux" not in file.name or not is_here(file.name)):
        return "looked at: it is for another machine"
    if shutil.which("javac") is None:
        return "skipped: Java is not installed"
    (place.folder / "Lock.java").write_text(LOCK_IN_JAVA)
    classes = place.folder / "classes"
    sources = HERE.parent / "java/src/main/java"
    run("javac", "--release", "17", "-d", classes, "-sourcepath", sources, place.folder / "Lock.java")
    if by_wine:
        folder, jar, compiled = (run("winepath", "--windows", path).strip() for path in (place.folder, file, classes))
        java = [place.windows.wine, place.windows.java, f"-Djava.io.tmpdir={folder}"]
        run(*java, "-cp", f"{compiled};{jar}", "Lock", env=plain_environment())
        return "used under Wine, by Java for Windows"
    environment = {**plain_environment(), "PATH": os.path.dirname(shutil.which("java"))}
    run("java", "-cp", os.pathsep.join(map(str, [classes, file])), "Lock", env=environment)
    return "used"


def check_extension(file: pathlib.Path, place: Place) -> str:
    """The jar for JUnit, with that of this machine's program: a server starts. What compiles the check is Java itself."""
    with zipfile.ZipFile(file) as jar:
        assert jar.namelist()[0] == "META-INF/MANIFEST.MF" and "META-INF/LICENSE-MIT" in jar.namelist(), jar.namelist()
    programs = [jar for jar in place.release.glob(f"{file.stem}-linux-*.jar") if is_here(jar.name)]
    if shutil.which("javac") is None or not programs:
        return "looked at: Java, or the jar with the program of this machine, is not here"
    (place.folder / "Lock.java").write_text(LOCK_IN_JAVA)
    environment = {**plain_environment(), "PATH": os.path.dirname(shutil.which("java"))}
    run("java", "-cp", os.pathsep.join(map(str, [file, *programs])), place.folder / "Lock.java", env=environment)
    return "used"


def check_texts(file: pathlib.Path, _place: Place) -> str:
    """A jar with sources, or with documents, and the licences."""
    with zipfile.ZipFile(file) as jar:
        names = jar.namelist()
    wanted = "index.html" if file.stem.endswith("-javadoc") else ".java"
    assert any(name.endswith(wanted) for name in names) and "META-INF/LICENSE-MIT" in names, names
    return "looked at"


def check_pom(file: pathlib.Path, place: Place) -> str:
    """The POM belongs to three jars, and has what Maven Central asks for, but a place if there is none yet."""
    text = file.read_text()
    fields = ["name", "description", "licenses"] + (["url", "scm", "developers"] if "<scm>" in text else [])
    assert all(f"  <{field}>" in text for field in fields), text
    for end in ["", "-sources", "-javadoc"]:
        assert (place.release / f"{file.stem}{end}.jar").is_file(), end
    return "looked at"


def check_tree(root: pathlib.Path) -> None:
    """What both kinds of packages of Linux put where."""
    wanted = ["bin/redlatch", "lib/systemd/system/redlatch.service", "share/man/man1/redlatch.1.gz"]
    wanted += ["share/doc/redlatch/LICENSE-MIT", f"share/doc/redlatch/{THIRD_PARTY}"]
    for name in wanted:
        assert (root / "usr" / name).stat().st_size > 0, name
    unit = (root / "usr/lib/systemd/system/redlatch.service").read_text()
    assert "ExecStart=/usr/bin/redlatch\n" in unit and "/usr/local" not in unit, unit
    assert "EnvironmentFile=-/etc/default/redlatch\n" in unit and (root / "etc/default/redlatch").is_file()
    # It may have a password.
    assert (root / "etc/default/redlatch").stat().st_mode & 0o777 == 0o640


def check_scripts(folder: pathlib.Path, scripts: str) -> None:
    """What runs at an installation and an upgrade is for sh, and systemd reads the new unit and starts the service again."""
    (folder / "scripts").write_text(scripts)
    run("sh", "-n", folder / "scripts")
    assert "daemon-reload" in scripts and "try-restart redlatch.service" in scripts, scripts


def use_in(root: pathlib.Path, *command: str, env: dict[str, str] | None = None, user: str = "0:0") -> str:
    """Uses a static program in a tree that has nothing else, or from the outside where that needs a right."""
    if os.geteuid() == 0:
        use(shutil.which("chroot"), f"--userspec={user}", root, *command, env=env)
        return "used, alone in its tree"
    use(root / command[0].lstrip("/"))
    return "used"


def check_deb(file: pathlib.Path, place: Place) -> str:
    root = place.folder / "root"
    if is_here(file.name) and os.geteuid() == 0:
        for name in ["info", "updates"]:
            (root / "var/lib/dpkg" / name).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        # The tree has no shell: its scripts run outside of it, and leave this system alone.
        run("dpkg", f"--root={root}", "--force-script-chrootless", "--install", file)
        assert "/etc/default/redlatch" in (root / "var/lib/dpkg/info/redlatch.conffiles").read_text()
        assert "install ok installed" in run("dpkg-query", f"--admindir={root}/var/lib/dpkg", "--status", "redlatch")
    else:
        run("dpkg-deb", "--extract", file, root)
    check_tree(root)
    assert (root / "usr/share/doc/redlatch/copyright").stat().st_size > 0
    run("dpkg-deb", "--control", file, place.folder / "control")
    check_scripts(place.folder, (place.folder / "control/postinst").read_text())
    check_head((root / "usr/bin/redlatch").read_bytes(), file.name)
    return use_in(root, "/usr/bin/redlatch") if is_here(file.name) else "looked at: it is for another processor"


def check_rpm(file: pathlib.Path, place: Place) -> str:
    if shutil.which("rpm") is None:
        return "skipped: rpm is not installed"
    run("rpm", "--checksig", "--nosignature", file)
    scripts = run("rpm", "--query", "--queryformat", "%{POSTIN}\n%{POSTUN}\n", "--package", file)
    check_scripts(place.folder, scripts)
    assert run("rpm", "--query", "--configfiles", "--package", file).strip() == "/etc/default/redlatch"
    assert "/usr/share/doc/redlatch" in run("rpm", "--query", "--list", "--package", file).splitlines()
    root = place.folder / "root"
    root.mkdir()
    if is_here(file.name) and os.geteuid() == 0:
        run("rpm", "--root", root, "--initdb")
        # All that it depends on is the shell, for its removal.
        assert "/bin/sh" in run("rpm", "--query", "--requires", "--package", file)
        run("rpm", "--root", root, "--install", "--force-debian", "--nodeps", "--noscripts", file)
        assert run("rpm", "--root", root, "--query", "redlatch").startswith("redlatch-")
    else:
        # It writes beside a file that it is given by name.
        archive = subprocess.run(["rpm2archive", "-n", "-"], input=file.read_bytes(), capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(root, filter="data")
    check_tree(root)
    check_head((root / "usr/bin/redlatch").read_bytes(), file.name)
    return use_in(root, "/usr/bin/redlatch") if is_here(file.name) else "looked at: it is for another processor"


def check_image(file: pathlib.Path, place: Place) -> str:
    """An OCI layout: each blob has the digest of its name, and the layer of this processor is a root file system that serves."""
    with tarfile.open(file) as tar:
        files = {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}

    def blob(descriptor: dict) -> bytes:
        data = files["blobs/" + descriptor["digest"].replace(":", "/")]
        assert descriptor["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}" and descriptor["size"] == len(data), descriptor
        return data

    assert json.loads(files["oci-layout"])["imageLayoutVersion"] == "1.0.0"
    (top,) = json.loads(files["index.json"])["manifests"]
    found, said = [], ""
    for descriptor in json.loads(blob(top))["manifests"]:
        manifest = json.loads(blob(descriptor))
        config = json.loads(blob(manifest["config"]))
        (layer,) = manifest["layers"]
        root = place.folder / config["architecture"]
        with tarfile.open(fileobj=io.BytesIO(blob(layer)), mode="r:gz") as tar:
            tar.extractall(root, filter="fully_trusted")
        assert descriptor["platform"]["architecture"] == config["architecture"]
        check_head((root / "usr/local/bin/redlatch").read_bytes(), config["architecture"])
        assert (root / "usr/share/licenses/redlatch" / THIRD_PARTY).stat().st_size > 0
        found.append(config["architecture"])
        if OTHER_NAMES[config["architecture"]] == MACHINE:
            variables = dict(each.split("=", 1) for each in config["config"]["Env"]) | {"REDLATCH_BIND": "127.0.0.1"}
            said = use_in(root, *config["config"]["Cmd"], env=os.environ | variables, user=config["config"]["User"])
    return f"{said or 'looked at'}: {', '.join(found)}"


def check_formula(file: pathlib.Path, place: Place) -> str:
    """The formula names the archives of the release, and installs that of this machine where Ruby plays Homebrew."""
    if shutil.which("ruby") is None:
        return "skipped: ruby is not installed"
    for system in ("macos", "linux"):
        for machine in ("arm", "intel"):
            said = json.loads(run("ruby", HERE / "formula.rb", file, system, machine))
            if not said["url"]:
                continue
            archive = place.release / said["url"].split("/")[-1]
            assert said["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest(), said
            assert ("darwin" in archive.name, "aarch64" in archive.name) == (system == "macos", machine == "arm"), said
            if is_here(archive.name) and system == "linux":
                shutil.unpack_archive(archive, place.folder, filter="data")
                (source,) = place.folder.glob("redlatch-*")
                run("ruby", HERE / "formula.rb", file, system, machine, place.folder / "prefix", cwd=source)
                use(place.folder / "prefix/bin/redlatch")
    return "used, with a stand-in for Homebrew"


def check_scoop(file: pathlib.Path, place: Place) -> str:
    """The manifest names the archive for Windows, and where the program is in it."""
    manifest = json.loads(file.read_text())
    named = manifest["architecture"]["64bit"]
    archive = place.release / named["url"].split("/")[-1]
    assert named["hash"] == hashlib.sha256(archive.read_bytes()).hexdigest(), named
    with zipfile.ZipFile(archive) as packed:
        assert f"{named['extract_dir']}/{manifest['bin']}" in packed.namelist()
    return "looked at: the archive that it names is checked by itself"


def check_elsewhere(_file: pathlib.Path, _place: Place) -> str:
    return "see packages/deploy/check.py, or the check of the file that it belongs to"


# The first pattern that fits has the check.
CHECKS: list[tuple[str, Callable[[pathlib.Path, Place], str]]] = [
    ("SHA256SUMS", check_elsewhere),
    ("*.cdx.json", check_elsewhere),
    ("redlatch-chart-*.tgz", check_elsewhere),
    ("redlatch-*-image.tar", check_image),
    ("redlatch-[0-9.]*-*.tar.gz", check_archive),
    ("redlatch-*.tar.gz", check_sdist),
    ("redlatch-go-*.zip", check_client_for_go),
    ("redlatch-*.zip", check_archive),
    ("redlatch_client-*-py3-none-any.whl", check_client_for_python),
    ("redlatch-client-*.tgz", check_client_for_node),
    ("redlatch-client-*-sources.jar", check_texts),
    ("redlatch-client-*-javadoc.jar", check_texts),
    ("redlatch-client-*.pom", check_pom),
    ("redlatch-junit-*-sources.jar", check_texts),
    ("redlatch-junit-*-javadoc.jar", check_texts),
    ("redlatch-junit-*.pom", check_pom),
    ("redlatch-client-*.jar", check_client_for_java),
    ("redlatch-*.whl", check_wheel),
    ("redlatch-[0-9]*.tgz", check_main_package),
    ("redlatch-*.tgz", check_npm),
    ("redlatch-junit-*-*.jar", check_jar),
    ("redlatch-junit-*.jar", check_extension),
    ("redlatch_*.deb", check_deb),
    ("redlatch-*.rpm", check_rpm),
    ("redlatch.rb", check_formula),
    ("redlatch.json", check_scoop),
]


@contextlib.contextmanager
def fresh(release: pathlib.Path, windows: Windows) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="redlatch größer ") as folder:
        yield Place(release, pathlib.Path(folder), windows)


def check_modes(file: pathlib.Path) -> None:
    """What an archive says of the rights of its files: it is not what the umask of its maker was."""
    if file.suffix in (".jar", ".whl", ".zip"):
        with zipfile.ZipFile(file) as archive:
            modes = {entry.external_attr >> 16 & 0o777 for entry in archive.infolist()}
    elif tarfile.is_tarfile(file):
        with tarfile.open(file) as archive:
            modes = {entry.mode & 0o777 for entry in archive if not entry.issym()}
    else:
        return
    assert modes <= {0o644, 0o755}, f"{file.name}: {[oct(mode) for mode in modes]}"


def check_kinds(release: pathlib.Path | None = None) -> None:
    """docs/platforms.md lists the files that are checked, and a release with all of them has each, but those for other systems."""
    page = (HERE.parents[1] / "docs/platforms.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.split("\n## Packages\n")[1].split("\n## ")[0].splitlines() if line.startswith("| ")]
    listed = [pattern for row in rows for pattern in row.split("`")[1::2]]
    assert sorted(listed) == sorted(pattern for pattern, _ in CHECKS), sorted(set(listed) ^ {pattern for pattern, _ in CHECKS})
    names = [file.name for file in release.iterdir()] if release else []
    made = {next(pattern for pattern, _ in CHECKS if fnmatch.fnmatch(name, pattern)) for name in names}
    missing = set(listed) - made - {"redlatch-*.zip", "redlatch.json"}
    assert not release or not missing, f"{release} lacks {missing}"


def check(release: pathlib.Path, windows: Windows = Windows()) -> None:
    """Checks every file of a release: one that no check knows is an error."""
    assert release.is_dir(), f"{release}: packages/release.py writes this folder"
    run("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=release)
    listed = {line.split("  ", 1)[1] for line in (release / "SHA256SUMS").read_text().splitlines()}
    assert listed | {"SHA256SUMS"} == {file.name for file in release.iterdir()}, listed
    for file in sorted(release.iterdir()):
        checks = [check for pattern, check in CHECKS if fnmatch.fnmatch(file.name, pattern)]
        assert checks, f"{file.name}: there is no check for it"
        started = time.monotonic()
        check_modes(file)
        with fresh(release.absolute(), windows) as place:
            said = checks[0](file.absolute(), place)
        print(f"{file.name}: {said} ({time.monotonic() - started:.1f} s)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--windows-python", type=pathlib.Path, help="Python for Windows, to run under Wine")
    parser.add_argument("--windows-node", type=pathlib.Path, help="Node for Windows, to run under Wine")
    parser.add_argument("--windows-java", type=pathlib.Path, help="Java for Windows, to run under Wine")
    parser.add_argument("release", type=pathlib.Path, help="what packages/release.py has written")
    options = parser.parse_args()
    windows = Windows(shutil.which("wine"), options.windows_python, options.windows_node, options.windows_java)
    check(options.release, windows)


if __name__ == "__main__":
    main()
