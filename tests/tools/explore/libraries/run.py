#!/usr/bin/env python3
"""Explores an ordinary program of each lock library in table.json, and compares what is found with the table. Then a service in each
language, which is right, or has one of five bugs: that is found, and nothing else.

    run.py --redlatch PROGRAM FOLDER    installs what is missing into FOLDER, explores, compares
    run.py --docs                       prints the table of docs/explore-libraries.md

A finding that `always` has must come, one that `sometimes` has may come, and no other may come each time. A library whose
toolchain is missing is skipped. The exit status is 1 if anything differs, also the page from the table.
"""

import argparse
import collections
import fnmatch
import json
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parents[3] / "docs" / "explore-libraries.md"
TABLE = json.loads((HERE / "table.json").read_text())
INSTALL_SECONDS_MAX = 15 * 60
PROBE_SECONDS_MAX = 60
# Of a search; each has at most some dozen cases.
EXPLORE_SECONDS_MAX = 10 * 60


class Skip(Exception):
    """The reason why a library is not explored."""


class Difference(Exception):
    """What is not as the table says."""


def output_of(words, folder, seconds):
    """What a command prints. The first word with a slash is relative to the folder."""
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise Skip(f"{words[0]}: {fault}") from fault
    if done.returncode != 0:
        raise Difference(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr.strip()}")
    return done.stdout


def install(name, target):
    """Installs a project, again if its files have changed. Returns its folder, into which they are copied."""
    project = TABLE["projects"][name]
    folder = target / name
    folder.mkdir(parents=True, exist_ok=True)
    files = [HERE / path for path in project["files"]] + sorted((HERE / name).iterdir())
    for file in files:
        shutil.copy(file, folder / file.name)
    for probe in project["probes"]:
        try:
            output_of(probe, folder, PROBE_SECONDS_MAX)
        except Difference as missing:
            raise Skip(missing) from missing
    inputs = [file for file in files if file.name in project["inputs"]]
    stamp = json.dumps(project["steps"]) + "".join(file.read_text() for file in inputs)
    stamp_file = folder / ".installed"
    if not stamp_file.exists() or stamp_file.read_text() != stamp:
        for step in project["steps"]:
            output_of(step, folder, INSTALL_SECONDS_MAX)
        stamp_file.write_text(stamp)
    check_versions(name, folder, "".join(file.read_text() for file in inputs))
    return folder


def check_versions(name, folder, inputs):
    """The table names the versions that are installed."""
    for library in TABLE["libraries"]:
        if library["project"] != name:
            continue
        pin, version = library["pin"], library["version"]
        if isinstance(pin, list):
            installed = output_of(pin, folder, PROBE_SECONDS_MAX)
            if not installed.startswith(version):
                raise Skip(f"{library['name']} {installed} is installed, and the table is of {version}")
        elif pin not in inputs or version not in pin:
            raise Difference(f"the project {name} has no {pin}")


def explore(library, folder, program):
    """What is found: for each finding and case, how often it came."""
    options = ["--format", "json", "--jobs", "2", *library.get("options", [])]
    words = [program, "explore", *options, "--", *library["command"]]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=EXPLORE_SECONDS_MAX)
    if done.returncode not in (0, 1):
        raise Difference(done.stderr.strip())
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    return {f"{finding['finding']} {finding['case']}": finding for finding in findings}


def compare(library, found):
    """Says what is not as the table has it. Returns what has come in one run of three or two, and is not in the table."""
    always = {f"{entry['finding']} {case}" for entry in library["findings"] for case in entry["always"]}
    patterns = [f"{entry['finding']} {case}" for entry in library["findings"] for case in entry.get("sometimes", [])]
    sometimes = {name for name in found for pattern in patterns if fnmatch.fnmatchcase(name, pattern)}
    # A client may find a server that restarts gone or there again.
    rare = {name for name in set(found) - always - sometimes if found[name]["came"] < found[name]["runs"]}
    # Of a run the first finding is told: another one may be in the place of one that comes always.
    hidden = {name.split()[1] for name in sometimes | rare}
    missing = sorted(name for name in always - set(found) if name.split()[1] not in hidden)
    added = sorted(set(found) - always - sometimes - rare)
    lines = [f"missing: {name}" for name in missing] + [f"not in the table: {name}" for name in added]
    if lines:
        raise Difference("\n".join(lines))
    return sorted(rare)


def explore_service(service, folder, program):
    """Each bug of a service is found, and nothing else. Returns the seconds of the longest search."""
    longest = 0.0
    for bug, finding in [("", None), *TABLE["bugs"].items()]:
        begun = time.monotonic()
        found = explore({**service, "command": [*service["command"], *bug.split()]}, folder, program)
        longest = max(longest, time.monotonic() - begun)
        if {entry["finding"] for entry in found.values()} != {finding} - {None}:
            raise Difference(f"{bug or 'without a bug'}: {finding or 'nothing'} is to be found, and not {sorted(found)}")
    return longest


def by_kind(cases):
    """Cases as the page tells them: the kinds of failures at each command."""
    kinds = collections.defaultdict(list)
    for case in cases:
        kind, command = case.split("@")
        kinds[command].append(f"`{kind}`")
    commands = {command: command.replace(":", " ").replace("*", "any command") for command in kinds}
    return "; ".join(f"{', '.join(names)} of {commands[command]}" for command, names in kinds.items())


def rows():
    """The part of the page that is made from the table."""
    libraries = TABLE["libraries"]
    names = {(library["name"], library["language"]) for library in libraries}
    known = [library for library in libraries if any(entry["reports"] for entry in library["findings"])]
    right = [title(library) for library in libraries if not library["findings"]]
    yield (
        f"These are {len(libraries)} versions of {len(names)} libraries. {len(known)} of them have a bug that is"
        f" known from a public report, and in {len(right)} nothing is found."
    )
    yield ""
    yield "| library | finding | with | what it means | report |"
    yield "|---|---|---|---|---|"
    for library in libraries:
        for entry in library["findings"]:
            cases = by_kind(entry["always"])
            if entry.get("sometimes"):
                cases += f"{'; ' if cases else ''}sometimes {by_kind(entry['sometimes'])}"
            yield f"| {title(library)} | `{entry['finding']}` | {cases} | {entry['means']} | {report(library, entry)} |"
    yield f"| {'; '.join(right)} | none | | | |"


def title(library):
    """A library as the page names it."""
    return f"{library['name']} {library['version']} ({library['language']})"


def report(library, entry):
    """The public reports of a finding, as links; of a new one the line that repeats it in the folder of its project."""
    links = []
    for url in entry["reports"]:
        owner, name, _, number = url.removeprefix("https://github.com/").split("/")
        links.append(f"[{owner}/{name}#{number}]({url})")
    case = (entry["always"] + entry.get("sometimes", []))[0]
    words = ["redlatch explore", *library.get("options", []), f"--case {case} --", *library["command"]]
    return ", ".join(links) or f"new: `{' '.join(words)}`"


def check_page():
    """The page has the table."""
    if "\n".join(rows()) not in PAGE.read_text():
        raise Difference("it has another table: run.py --docs prints this one")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", nargs="?", type=pathlib.Path)
    arguments.add_argument("--redlatch", default="redlatch", help="the program that explores")
    arguments.add_argument("--only", nargs="+", help="these libraries, by name, or by name and version")
    arguments.add_argument("--quick", action="store_true", help="those that take a second or two")
    arguments.add_argument("--docs", action="store_true")
    options = arguments.parse_args()
    if options.docs:
        print("\n".join(rows()))
        return 0
    if options.folder is None:
        arguments.error("where are the libraries to be installed?")
    program = shutil.which(options.redlatch) or arguments.error(f"there is no program {options.redlatch}")
    program = str(pathlib.Path(program).resolve())
    target = options.folder.resolve()

    def is_chosen(library):
        names = {library["name"], f"{library['name']} {library['version']}"}
        return (not options.quick or library.get("quick")) and (not options.only or names & set(options.only))

    chosen = [library for library in TABLE["libraries"] + TABLE["services"] if is_chosen(library)]
    outcomes, folders = collections.Counter(), {}
    checks = [(f"{each['name']} {each['version']}", each) for each in chosen] + [("docs/explore-libraries.md", None)]
    for name, check in checks:
        begun = time.monotonic()
        outcome, said = "passed", ""
        try:
            if check is None:
                check_page()
            else:
                project = check["project"]
                folder = folders[project] = folders.get(project) or install(project, target)
                if check in TABLE["services"]:
                    said = f"{explore_service(check, folder, program):.1f} s the longest search, "
                else:
                    found = explore(check, folder, program)
                    said = f"{len(found)} findings, " + "".join(f"sometimes {name}, " for name in compare(check, found))
        except Skip as reason:
            outcome, said = "skipped", f"{reason}, "
        except Difference as difference:
            outcome, said = "failed", f"{difference}\n"
        outcomes[outcome] += 1
        print(f"{outcome} {name}: {said}{time.monotonic() - begun:.1f} s", flush=True)
    print(f"{outcomes['passed']} passed, {outcomes['failed']} failed, {outcomes['skipped']} skipped")
    return int(outcomes["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
