#!/usr/bin/env python3
"""Runs the own tests of lock libraries on Redis and on redlatch, and compares them test by test.

    run.py --redis PROGRAM --redlatch PROGRAM FOLDER [NAME ...]

A test that passes on Redis must pass on redlatch. Its sources come from the archive of the library's package, into FOLDER, in the
versions that the files beside this one name. In a copy of them the port 6379 becomes one that is free. `redis-server` in the path is
the server on trial, for tests that start one themselves. A library whose package has no tests is skipped by name.

The exit status is 1 if a test passes on Redis alone, in two runs of its suite on redlatch. It may if redlatch lacks a command, which
the row of the suite in table.json names under `lacks`, and without which one of its tests does fail.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
TABLE = json.loads((HERE / "table.json").read_text())
INSTALL_SECONDS_MAX = 15 * 60
START_SECONDS_MAX = 30
SUITE_SECONDS_MAX = 10 * 60
# Of a suite that has written its report; that of rq then waits for a process that it has left behind.
EXIT_SECONDS_MAX = 10
# Below the ports that a system gives to clients.
PORTS = range(20_000, 32_000)
# Clients that suites connect to their default port: tests find copies of these first.
CLIENTS = {"npm": ["ioredis", "redis"], "pypi": ["redis"]}


class Fault(Exception):
    """The reason why a suite is not compared, or its row of the table is wrong."""


def run(words, folder, seconds, environment=None, report=None):
    """What a command prints, whatever its exit status. It and what it started end in time, and soon after it has written its report."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        deadline = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
            # PHPUnit creates its report when it starts.
            if report and report.exists() and report.stat().st_size > 0:
                deadline = min(deadline, time.monotonic() + EXIT_SECONDS_MAX)
                report = None
        status = process.poll()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        return status, output.read().decode(errors="replace")


def must(words, folder):
    """What a command prints that must succeed."""
    status, output = run(words, folder, INSTALL_SECONDS_MAX)
    if status != 0:
        raise Fault(f"{' '.join(map(str, words[:3]))}: {' '.join(output.split()[-30:])}")
    return output


def unpack(archive, folder, only=""):
    """The files of an archive, without its first folder."""
    with tarfile.open(archive) as opened:
        for member in opened.getmembers():
            _, _, member.name = member.name.partition("/")
            if member.name.startswith(only) and (member.isfile() or member.isdir()):
                opened.extract(member, folder, filter="data")


class Packages:
    """Fetches what each registry has, once."""

    def __init__(self, folder):
        self.folder = folder
        self.fetched = {}

    def sources(self, kind, package):
        """The folder with the sources of a package."""
        if kind not in self.fetched:
            folder = self.folder / kind
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(HERE, folder)
            self.fetched[kind] = getattr(self, kind)(folder)
        return self.fetched[kind](package)

    def go(self, folder):
        output = must(["go", "mod", "download", "-json", *(suite["package"] for suite in TABLE if suite.get("registry") == "go")], folder)
        modules = [json.loads(text) for text in re.findall(r"^\{.*?^\}", output, re.S | re.M)]
        return {module["Path"]: pathlib.Path(module["Dir"]) for module in modules}.__getitem__

    def pypi(self, folder):
        must([sys.executable, "-m", "venv", "venv"], folder)
        pip = ["venv/bin/python", "-m", "pip", "--quiet"]
        must([*pip, "install", "--requirement=requirements.txt"], folder)
        must([*pip, "download", "--no-deps", "--no-binary=:all:", "--dest=sdists", "--requirement=sdists.txt"], folder)
        for archive in (folder / "sdists").glob("*.tar.gz"):
            unpack(archive, folder / "sources" / re.sub(r"-[^-]*$", "", archive.name).replace("_", "-"))
        return (folder / "sources").joinpath

    def npm(self, folder):
        must(["npm", "ci", "--no-audit", "--no-fund"], folder)
        return (folder / "node_modules").joinpath

    def debian(self, folder):
        for name in ["lists/partial", "parts"]:
            (folder / name).mkdir(parents=True)
        for file in pathlib.Path("/etc/apt/sources.list.d").glob("*.sources"):
            # Other publishers need not have sources.
            if file.name.startswith(("debian", "ubuntu")):
                (folder / "parts" / file.name).write_text(file.read_text().replace("Types: deb\n", "Types: deb-src\n"))
        options = [f"Dir::Etc::SourceParts={folder}/parts", "Dir::Etc::SourceList=/dev/null", f"Dir::State::Lists={folder}/lists"]
        apt = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]
        must([*apt, "update"], folder)

        def fetch(package):
            must([*apt, "source", "--download-only", package], folder)
            (archive,) = folder.glob(f"{package}_*.orig.tar.*")
            unpack(archive, folder / package, "src/")
            return folder / package

        return fetch


def copy(source, target, replacements):
    """Copies sources, with these words in their texts in the place of others."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    for path in [target, *target.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
        if path.is_file():
            with contextlib.suppress(UnicodeDecodeError):
                text = path.read_bytes().decode()
                changed = text
                for old, new in replacements:
                    changed = re.sub(old, new, changed)
                if changed != text:
                    path.write_bytes(changed.encode())


def free_ports(count):
    """The first of so many ports in a row to which nobody is bound."""
    for _ in range(100):
        first = random.randrange(PORTS.start, PORTS.stop - count)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise Fault("no free ports")


@contextlib.contextmanager
def server(program, port, folder):
    """A server at this port, which keeps nothing on disk, and is ended by its id."""
    data = tempfile.mkdtemp(dir=folder)
    process = subprocess.Popen(
        [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", data],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(7) == b"+PONG\r\n":
                    break
            if process.poll() is not None or time.monotonic() > deadline:
                raise Fault(f"{program} does not start")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(data, ignore_errors=True)


def of_go(output, _report):
    """Each test that `go test -json` ran, its outcome, and what it printed."""
    printed = collections.defaultdict(str)
    for line in output.splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        if "Test" in event:
            # Some are named after the time at which they run.
            name = re.sub(r"\([^)]*\d:\d[^)]*\)", "", f"{event['Package']}.{event['Test']}")
            printed[name] += event.get("Output", "")
            if event["Action"] in ("pass", "fail", "skip"):
                yield name, event["Action"], printed[name]


def of_junit(_output, report):
    """Each test in the report of pytest or PHPUnit, its outcome, and why."""
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        bad = {child.tag for child in case} & {"failure", "error", "warning"}
        outcome = "fail" if bad else "skip" if case.find("skipped") is not None else "pass"
        yield f"{case.get('classname', '')}.{case.get('name')}", outcome, "".join(case.itertext())


def of_mocha(_output, report):
    """Each test in the report of mocha, its outcome, and why."""
    tests = json.loads(report.read_text())
    for kind, outcome in [("passes", "pass"), ("failures", "fail"), ("pending", "skip")]:
        for test in tests[kind]:
            yield test["fullTitle"], outcome, str(test["err"])


PYTEST = "{packages}/pypi/venv/bin/python -m pytest -q -rs -p one_process -p no:cacheprovider --timeout=60 --junitxml={report}"
MOCHA = "node {packages}/npm/node_modules/mocha/bin/mocha.js --exit --reporter=json --reporter-option=output={report}"
RUNNERS = {
    "go": ("go test -json -count=1 -p=1 -timeout={seconds}s", of_go),
    "pypi": (f"{PYTEST} --override-ini=asyncio_default_fixture_loop_scope=function", of_junit),
    "npm": (MOCHA, of_mocha),
    "debian": ("phpunit --no-configuration --bootstrap={packages}/debian/autoload.php --log-junit={report}", of_junit),
}


class Trial:
    """A suite on one server after the other."""

    def __init__(self, suite, packages):
        self.suite = suite
        self.packages = packages
        self.port = free_ports(1)
        port = str(self.port)
        replacements = [(r"(?<!\d)6379(?!\d)", port)]
        if "ports" in suite:
            replacements.append((str(suite["ports"]["first"]), str(free_ports(suite["ports"]["count"]))))
        replacements[:0] = suite.get("replace", [])
        self.copies = packages.folder / "copies"
        # Below the packages of Node, so that these are found.
        if suite["registry"] == "npm":
            self.copies = packages.folder / "npm" / "copies"
        self.folder = self.copies / re.sub(r"\W+", "-", suite["name"])
        copy(packages.sources(suite["registry"], suite["package"]), self.folder, replacements)
        for name in CLIENTS.get(suite["registry"], []):
            copy(packages.sources(suite["registry"], name), self.copies / "node_modules" / name, replacements)

    def on(self, program):
        """The outcomes on a server: for each test, the worst of those that have its name."""
        path = self.packages.folder / "path"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        # Tests wait for what Redis prints, which redlatch writes to the other stream.
        (path / "redis-server").write_text(f'#!/bin/sh\nexec {shlex.quote(str(program))} "$@" 2>&1\n')
        (path / "redis-server").chmod(0o755)
        report = self.packages.folder / "report"
        report.unlink(missing_ok=True)
        words, outcomes = RUNNERS[self.suite["registry"]]
        seconds = self.suite.get("seconds", SUITE_SECONDS_MAX)
        names = {"packages": self.packages.folder, "report": report, "seconds": seconds, "port": self.port}
        words = [word.format(**names) for word in [*words.split(), *self.suite["arguments"]]]
        environment = {
            **os.environ,
            "PATH": os.pathsep.join(map(str, [path, self.packages.folder / "pypi" / "venv" / "bin", os.environ["PATH"]])),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join(map(str, [self.folder, self.folder / "src", self.copies / "node_modules" / "redis", HERE])),
            "REDIS_HOST": f"127.0.0.1:{self.port}",
            **{name: value.format(**names) for name, value in self.suite.get("environment", {}).items()},
        }
        with server(program, self.port, self.packages.folder):
            _, output = run(words, self.folder, seconds + 10, environment, report)
        (self.packages.folder / f"{self.folder.name}-{program.name}.log").write_text(output)
        worst = {}
        with contextlib.suppress(OSError, ValueError, xml.etree.ElementTree.ParseError):
            for name, *outcome in outcomes(output, report):
                worst[name] = min(outcome, worst.get(name, outcome), key=lambda one: ["fail", "skip", "pass"].index(one[0]))
        return collections.defaultdict(lambda: ["none", ""], worst)


def compare(suite, packages, redis, redlatch):
    """Prints what a suite comes to. Returns how many tests pass on both, and the names of those that pass on Redis alone."""
    trial = Trial(suite, packages)
    first = trial.on(redis)
    passed = {name for name, (outcome, _) in first.items() if outcome == "pass"}
    if not passed:
        raise Fault("no test passes on Redis")
    second = trial.on(redlatch)
    alone = {name for name in passed if second[name][0] != "pass"}
    # The command that redlatch lacks, for each test that fails for that reason.
    refusals = {name: re.search(r"unknown command '(\w+)", second[name][1]) for name in alone}
    lacking = {name: refusal[1] for name, refusal in refusals.items() if refusal and refusal[1] in suite.get("lacks", [])}
    alone -= set(lacking)
    again = trial.on(redlatch) if alone else {}
    unsteady = {name for name in alone if again[name][0] == "pass"}
    passed -= alone - unsteady | set(lacking)
    failed = sum(second[name][0] == outcome == "fail" for name, (outcome, _) in first.items())
    skipped = sum(outcome == "skip" for outcome, _ in first.values())
    print(
        f"{suite['name']} {suite['version']}: {len(passed)} passed on both, {failed} failed on both,"
        f" {len(alone - unsteady)} on Redis alone, {len(unsteady)} on redlatch in a second run,"
        f" {len(lacking)} with commands that redlatch lacks, {skipped} skipped",
        flush=True,
    )
    for name in sorted(alone):
        print(f"    {'in a second run' if name in unsteady else 'on Redis alone'}: {name}")
    if unused := set(suite.get("lacks", [])) - set(lacking.values()):
        raise Fault(f"no test fails for want of {', '.join(sorted(unused))}")
    return len(passed), sorted(alone - unsteady)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redis", required=True, type=pathlib.Path)
    parser.add_argument("--redlatch", required=True, type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    packages = Packages(options.folder.resolve())
    done, passed, alone, skipped, faults = 0, 0, [], [], []
    for suite in TABLE:
        if options.names and suite["name"] not in options.names:
            continue
        if "skipped" in suite:
            skipped.append(f"{suite['name']} ({suite['skipped']})")
            continue
        try:
            both, only = compare(suite, packages, options.redis.absolute(), options.redlatch.absolute())
        except Fault as reason:
            print(f"{suite['name']}: not compared: {reason}", flush=True)
            faults.append(suite["name"])
            continue
        done, passed = done + 1, passed + both
        alone += only
    print(
        f"suites: {done} suites, {passed:,} tests passed on both, {len(alone)} passed on Redis alone;"
        f" skipped: {', '.join(skipped) or 'none'}; not compared: {', '.join(faults) or 'none'}"
    )
    print(f'tally: {{"client_tests": {passed}, "violations": {len(alone)}}}')
    sys.exit(1 if alone or faults else 0)


if __name__ == "__main__":
    main()
