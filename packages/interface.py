#!/usr/bin/env python3
"""Checks that packages name what the server has, all of it, and nothing else.

    packages/interface.py PACKAGE...

packages/interface.json has the names, from the tables of the server: `UPDATE_README=1 cargo test --test suite readme` writes it.
A package has no list of its own. Its names are found in its sources, by the text around them.
"""

import json
import pathlib
import re
import sys
from typing import NamedTuple, Optional

FOLDER = pathlib.Path(__file__).resolve().parent
SERVER: dict[str, list[str]] = json.loads((FOLDER / "interface.json").read_text())

# A package starts the server with few of its flags.
IN_PART = {"flags"}


class Source(NamedTuple):
    """Where a package has the names of a list: what matches `name` in the file, from `start` up to the next `end`.

    The list of a command has its subcommands.
    """

    names: str
    file: str
    name: str
    start: str = ""
    end: Optional[str] = None


def shapes(file: str, start: str, name: str, end: str, types: dict[str, str]) -> list[Source]:
    """The fields of replies, each of which is a type of this name."""
    return [Source(f"{names} fields", file, name, start % type, end) for names, type in types.items()]


TYPES = {
    "clock": "ClockState",
    "event": "Event",
    "fault": "FaultState",
    "finding": "Finding",
    "namespace": "NamespaceState",
    "node": "NodeState",
}
WORD = r'"([A-Z-]+)"'
TEXT = r'"([a-z]+)"'
FLAG = r'"--([a-z-]+)"'


def python() -> list[Source]:
    """The Python package."""
    calls_of, types = "python/redlatch/_namespace.py", "python/redlatch/_types.py"
    server = "python/redlatch/_server.py"
    return [
        Source("TEST.CLOCK", calls_of, rf"_(?:call|time)\({WORD}", r"^class Clock:", r"^class "),
        Source("TEST.FAULT", calls_of, rf"_call\({WORD}", r"^class Fault:", r"^class Nodes:"),
        Source("TEST.NAMESPACE", server, rf'"TEST.NAMESPACE", {WORD}'),
        Source("TEST.NODE", calls_of, rf'(?:_call\(|"TEST.NODE", ){WORD}', r"^class Nodes:", r"^class "),
        Source("TEST.SLOT", calls_of, rf'_call\({WORD}', r"^class Slots:", r"^def "),
        Source("clock modes", types, TEXT, r"^    mode: Literal", r"\n"),
        Source("deadline fields", types, rf"{TEXT}:", r"^Deadline = ", r"^}"),
        Source("event kinds", types, TEXT, r"^EventKind = ", r"^]"),
        Source("fault actions", calls_of, rf"self\.add\({WORD}"),
        Source("fault conditions", calls_of, TEXT, r"^        for name in \(", r"\)"),
        Source("fault conditions", calls_of, r"^    (\w+):", r"^class Conditions\(", r"^class "),
        Source("flags", server, FLAG),
        Source("history filters", calls_of, r"(\w+)=", r'^        """What happened', r"\)"),
        Source("node states", types, TEXT, r"^    state: Literal", r"\n"),
        *shapes(types, r"^class %s\(", r"^    (\w+):", r"\n\n\n", TYPES),
    ]


def node() -> list[Source]:
    """The package for Node."""
    calls_of, types, server = "lib/namespace.js", "index.d.ts", "lib/server.js"
    kinds = {**TYPES, "deadline": "Deadline"}
    return [
        Source("TEST.CLOCK", calls_of, rf"#call\({WORD}", r"^export class Clock ", r"^}"),
        Source("TEST.FAULT", calls_of, rf"#call\({WORD}", r"^export class Faults ", r"^}"),
        Source("TEST.NAMESPACE", server, rf'"TEST.NAMESPACE", {WORD}'),
        Source("TEST.NODE", calls_of, rf'(?:#\w+\(|"TEST.NODE", ){WORD}', r"^export class Nodes ", r"^}"),
        Source("TEST.SLOT", calls_of, rf'"TEST.SLOT", {WORD}'),
        Source("clock modes", types, TEXT, r"^export type ClockMode", r";"),
        Source("event kinds", types, TEXT, r"^export type EventKind", r";"),
        Source("fault actions", calls_of, rf"this\.add\(\[?{WORD}"),
        Source("fault conditions", calls_of, TEXT, r"^const CONDITIONS", r";"),
        Source("fault conditions", types, r"^  (\w+)\?:", r"^export interface Conditions ", r"^}"),
        Source("flags", server, FLAG),
        Source("history filters", calls_of, TEXT, r"^  history\(", r"\]"),
        Source("history filters", types, r"^  (\w+)\?:", r"^export interface HistoryFilter ", r"^}"),
        Source("node states", types, TEXT, r"^  state:", r";"),
        *shapes(types, r"^export interface %s ", r"^  (\w+)\??:", r"^}", kinds),
    ]


def go() -> list[Source]:
    """The module for Go. Its structs have the fields in title case."""
    field, option = r"^\t([A-Z]\w*) ", rf"option\(words, {WORD}"
    struct = r"^type %s struct"
    return [
        Source("TEST.CLOCK", "clock.go", rf'(?:\.time\(|"TEST.CLOCK", ){WORD}'),
        Source("TEST.FAULT", "faults.go", rf'"TEST.FAULT", {WORD}'),
        Source("TEST.NAMESPACE", "redlatchtest.go", rf'"TEST.NAMESPACE", {WORD}'),
        Source("TEST.NODE", "nodes.go", rf'(?:nodes\.\w+\(|"TEST.NODE", ){WORD}'),
        Source("TEST.SLOT", "slots.go", rf'"TEST.SLOT", {WORD}'),
        Source("clock modes", "clock.go", TEXT, r"^\t// Mode is", r"\n"),
        Source("clock modes", "namespace.go", TEXT, r"^\t// Mode is", r"\n"),
        Source("event kinds", "namespace.go", rf"^\t\w+ +EventKind = {TEXT}"),
        Source("fault actions", "faults.go", rf"\.Add\(where, {WORD}"),
        Source("fault conditions", "faults.go", option),
        Source("fault conditions", "faults.go", field, struct % "Where", r"^}"),
        Source("flags", "redlatchtest.go", FLAG),
        Source("history filters", "namespace.go", option),
        Source("history filters", "namespace.go", field, struct % "Filter", r"^}"),
        Source("node states", "nodes.go", TEXT, r"^\t// State is", r"\n"),
        *shapes("clock.go", struct, field, r"^}", {"clock": "ClockState", "deadline": "Deadline"}),
        *shapes("faults.go", struct, field, r"^}", {"fault": "FaultState"}),
        *shapes("nodes.go", struct, field, r"^}", {"node": "NodeState"}),
        *shapes(
            "namespace.go",
            struct,
            field,
            r"^}",
            {"event": "Event", "finding": "Finding", "namespace": "NamespaceState"},
        ),
    ]


def java() -> list[Source]:
    """The extension for JUnit. Its replies are maps, whose fields stand in the comments of the calls that return them."""
    folder = "src/main/java/dev/redlatch/junit"
    clock, faults, nodes = (f"{folder}/{name}.java" for name in ("Clock", "Faults", "Nodes"))
    namespace, server, where = (f"{folder}/{name}.java" for name in ("Redlatch", "RedlatchServer", "Where"))
    field, end = r"\b([a-z]+)\b", r" of each|\."
    return [
        Source("TEST.CLOCK", clock, rf"(?:time|call)\({WORD}"),
        Source("TEST.FAULT", faults, rf'"TEST.FAULT", {WORD}'),
        Source("TEST.NAMESPACE", server, rf'"TEST.NAMESPACE", {WORD}'),
        Source("TEST.NODE", nodes, rf'(?:silence\(|wake\(|change\(|"TEST.NODE", ){WORD}'),
        Source("TEST.SLOT", f"{folder}/Slots.java", rf'"TEST.SLOT", {WORD}'),
        Source("clock fields", clock, field, r"/\*\* Its state:", end),
        Source("deadline fields", clock, field, r"Of a deadline:", end),
        Source("event fields", namespace, field, r"The fields of an event:", end),
        Source("event kinds", f"{folder}/EventKind.java", rf"= {TEXT}"),
        Source("fault actions", faults, rf"add\(where, {WORD}"),
        Source("fault conditions", where, rf"with\({WORD}"),
        Source("fault fields", faults, field, r"/\*\* All faults:", end),
        Source("finding fields", namespace, field, r"did wrong with locks:", end),
        Source("flags", server, FLAG),
        Source("namespace fields", server, field, r"/\*\* All namespaces:", end),
        Source("node fields", nodes, field, r"/\*\* All nodes:", end),
    ]


PACKAGES = {"go": go, "java": java, "node": node, "python": python}
ENDINGS = {"go": "*.go", "java": "src/**/*.java", "node": "lib/*.js", "python": "python/**/*.py"}


def part(source: Source, text: str) -> Optional[str]:
    """The part of a file where the names are; None if its start is not found."""
    start = re.search(source.start, text, re.MULTILINE)
    if start is None:
        return None
    text = text[start.end() :]
    end = source.end and re.search(source.end, text, re.MULTILINE)
    return text[: end.start()] if end else text


def compared(names: str, file: str, found: set[str]) -> list[str]:
    """What differs between the names in a file and those of the server, in sentences."""
    server = {name.casefold() for name in SERVER[names]}
    found = {name.casefold() for name in found}
    missing = set() if names in IN_PART else server - found
    return [
        *(f"{file} lacks '{name}', which the server has among its {names}" for name in sorted(missing)),
        *(f"{file} has '{name}', which the server does not have among its {names}" for name in sorted(found - server)),
    ]


def faults(package: str) -> list[str]:
    """What is wrong with a package."""
    folder = FOLDER / package
    wrong = []
    for source in PACKAGES[package]():
        file = folder / source.file
        text = part(source, file.read_text())
        if text is None:
            wrong.append(f"packages/{package}/{source.file} has no /{source.start}/, where {source.names} are looked for")
        else:
            found = set(re.findall(source.name, text, re.MULTILINE))
            wrong += compared(source.names, f"packages/{package}/{source.file}", found)
    texts = "".join(file.read_text() for file in sorted(folder.glob(ENDINGS[package])))
    return wrong + compared("commands", f"packages/{package}", set(re.findall(r'"(TEST\.[A-Z]+)"', texts)))


def main(packages: list[str]) -> int:
    if not packages or not set(packages) <= set(PACKAGES):
        print(f"usage: {sys.argv[0]} PACKAGE..., of {', '.join(PACKAGES)}", file=sys.stderr)
        return 2
    wrong = [fault for package in packages for fault in faults(package)]
    for fault in wrong:
        print(fault, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
