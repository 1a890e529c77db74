#!/usr/bin/env python3
"""Measures the lease test of each backend: lines, seconds of the test, seconds of the command that a user types.

    REDLATCH_BINARY=target/release/redlatch packages/compare/run.py [--times 5] [--into target/compare]

Installs what the tests need into the folder; Go and Maven use their own caches. Prints medians as a table in Markdown.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = HERE.parent
LIBRARIES = re.compile(r"fakeredis|freezegun|^redis==|redsync|miniredis|go-redis|redisson|jedis-mock|ioredis|redlock")


@dataclasses.dataclass
class Case:
    """One test: its file, the command that runs it alone, and the folder to run that in."""

    name: str
    file: str
    command: list[str]
    folder: pathlib.Path


def run(command, folder, **variables):
    """What a command prints on both streams. One that fails ends the script with that."""
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | variables
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode != 0:
        raise SystemExit(f"{command} fails:\n{done.stdout}")
    return done.stdout


def install(into: pathlib.Path, program: str):
    """The libraries, and the packages of this repository around the program."""
    python = into / "venv/bin/python"
    if not python.exists():
        run(["python3", "-m", "venv", into / "venv"], into)
    run([python, "-m", "pip", "install", "--quiet", "--requirement", HERE / "python/requirements.txt"], into)

    for folder in ["node", "java"]:
        shutil.copytree(HERE / folder, into / folder, dirs_exist_ok=True)
    run(["node", PACKAGES / "node/build.mjs", program, into], into)
    tarballs = sorted(into.glob("redlatch-*.tgz"))
    run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--no-save", ".", *tarballs], into / "node")

    maven = ["mvn", "--batch-mode", "--quiet"]
    run([*maven, f"-Dbuild.folder={into / 'java-build'}", "install"], PACKAGES / "java")
    run([*maven, "test-compile"], into / "java")
    run(["go", "test", "-run", "^$", "./..."], HERE / "go")


def cases(into: pathlib.Path) -> list[Case]:
    def pytest(file, *plugin):
        command = [str(into / "venv/bin/pytest"), "-s", "-p", "no:cacheprovider", *plugin, file]
        return Case("", f"python/{file}", command, HERE / "python")

    def go(test, file):
        return Case("", f"go/{file}", ["go", "test", "-count=1", "-v", "-run", f"^{test}$", "."], HERE / "go")

    def node(file):
        return Case("", f"node/{file}", ["node", "--test", file], into / "node")

    def java(test):
        command = ["mvn", "--batch-mode", "--offline", f"-Dtest={test}", "test"]
        return Case("", f"java/src/test/java/compare/{test}.java", command, into / "java")

    rows = {
        "Python: redlatch": pytest("test_redlatch.py", "-p", "redlatch.pytest_plugin"),
        "Python: fakeredis, freezegun": pytest("test_fakeredis.py"),
        "Python: a real redis-server": pytest("test_redis_server.py"),
        "Go: redlatch": go("TestRedlatch", "redlatch_test.go"),
        "Go: miniredis": go("TestMiniredis", "miniredis_test.go"),
        "Node: redlatch": node("redlatch.test.js"),
        "Node: ioredis-mock": node("ioredis-mock.test.js"),
        "Java: redlatch": java("RedlatchLeaseTest"),
        "Java: jedis-mock": java("JedisMockLeaseTest"),
    }
    return [dataclasses.replace(case, name=name) for name, case in rows.items()]


def lines(file: pathlib.Path) -> int:
    """Lines without blank ones, comments, imports, and those of the stopwatch."""
    text = file.read_text()
    text = re.sub(r'"""(.|\n)*?"""|/\*(.|\n)*?\*/|^import \((.|\n)*?^\)', "", text, flags=re.MULTILINE)
    left_out = re.compile(r"\s*($|#|//|import\b|from\b|package\b)|.*stopwatch", re.IGNORECASE)
    return sum(not left_out.match(line) for line in text.splitlines())


def measure(case: Case) -> tuple[float, float, float]:
    """Seconds until the server is there, of the body, and of the whole command."""
    since = time.monotonic()
    printed = run(case.command, case.folder, PYTHONPATH=str(PACKAGES / "python/python"))
    whole = time.monotonic() - since
    told = dict(re.findall(r"stopwatch (start|body) ([0-9.]+)", printed))
    return float(told["start"]), float(told["body"]), whole


def versions() -> list[str]:
    """The lines of the manifests that name a backend or a client library."""
    python = (HERE / "python/requirements.txt").read_text().split()
    go = re.findall(r"^\t(\S+ v\S+)$", (HERE / "go/go.mod").read_text(), re.MULTILINE)
    node = re.findall(r'"(\S+)": "(\d\S*)"', (HERE / "node/package.json").read_text())
    java = re.findall(r"<artifactId>(\S+)</artifactId>\s*<version>(\S+)</version>", (HERE / "java/pom.xml").read_text())
    named = [*python, *go, *(" ".join(pair) for pair in node + java), run(["redis-server", "--version"], HERE).strip()]
    return [each for each in named if LIBRARIES.search(each) or each.startswith("Redis server")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--into", type=pathlib.Path, default=PACKAGES.parent / "target/compare")
    arguments = parser.parse_args()
    if "REDLATCH_BINARY" not in os.environ:
        parser.error("REDLATCH_BINARY must name the program")
    into = arguments.into.resolve()
    into.mkdir(parents=True, exist_ok=True)
    program = os.environ["REDLATCH_BINARY"] = str(pathlib.Path(os.environ["REDLATCH_BINARY"]).resolve())

    install(into, program)
    print("| lease test | lines | body, ms | with server start, ms | whole command, s |")
    print("|---|---:|---:|---:|---:|")
    for case in cases(into):
        measure(case)  # fills the caches
        taken = [measure(case) for _ in range(arguments.times)]
        body = statistics.median(body for _, body, _ in taken)
        started = statistics.median(start + body for start, body, _ in taken)
        whole = statistics.median(whole for _, _, whole in taken)
        row = f"{lines(HERE / case.file)} | {body * 1e3:.1f} | {started * 1e3:.1f} | {whole:.1f}"
        print(f"| [{case.name}](../packages/compare/{case.file}) | {row} |", flush=True)
    print("\nVersions:", ", ".join(versions()))


if __name__ == "__main__":
    main()
