"""The licences of the crates in a program: the texts in the packages of the crates, each once, with the names of those that have it.

Rule    a crate under MIT or Apache is used under MIT, whose text is shorter. A few crates have no text of their licence: they get that of
        this repository, with the authors that their manifests name.
"""

import pathlib
import re

from .common import ROOT, Failure

FILE = "LICENSE-THIRD-PARTY"
TEXT = re.compile(r"(UN)?LICEN[CS]E|COPYING|COPYRIGHT|NOTICE", re.IGNORECASE)
# C in a crate whose licence is at the end of a header.
HEADERS = {"lua-src": "lua-5.1*/lua.h"}
HEAD = "redlatch contains the crates that are named here. Before each text are those that it is the licence of.\n"


def texts(package: dict) -> list[str]:
    """The texts of a crate, those of the C in it included."""
    folder = pathlib.Path(package["manifest_path"]).parent
    files = sorted(file for file in folder.rglob("*") if TEXT.match(file.name) and file.is_file() and file.suffix != ".rs")
    if " OR " in (package["license"] or "").replace("/", " OR "):
        others = [file for file in files if "APACHE" not in file.name.upper()]
        files = others or files
    found = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    for header in folder.glob(HEADERS.get(package["name"], "-")):
        found.append("Copyright" + header.read_text(encoding="utf-8").rsplit("Copyright", 1)[1])
    return found or [standard(package)]


def standard(package: dict) -> str:
    """The text of a licence that a crate names and does not have."""
    if "Apache-2.0" in package["license"]:
        return (ROOT / "LICENSE-APACHE").read_text(encoding="utf-8")
    if package["license"] != "MIT":
        raise Failure(f"{package['name']} has no text of its licence, {package['license']}: packages/release/licences.py must have one")
    text = (ROOT / "LICENSE-MIT").read_text(encoding="utf-8")
    authors = ", ".join(package["authors"]) or f"the authors of {package['name']}"
    return re.sub(r"Copyright .*", f"Copyright (c) {authors}", text)


def collected(packages: list[dict]) -> str:
    """All texts. Two that differ in nothing but blanks are one."""
    named: dict[str, list[str]] = {}
    written: dict[str, str] = {}
    for package in packages:
        for text in texts(package):
            key = " ".join(text.split())
            written.setdefault(key, text.strip("\n"))
            names = named.setdefault(key, [])
            name = f"{package['name']} {package['version']}"
            if name not in names:
                names.append(name)
    parts = [f"{'=' * 80}\n{', '.join(names)}\n\n{written[key]}\n" for key, names in named.items()]
    return "\n".join([HEAD, *parts])
