"""The licences of what is in a program: the texts in the packages of the crates, each once, with the names of those that have it; then
that of Rust's standard library, which the toolchain has, and that of the C library that is linked into it: `runtimes` has these.

Rule    a crate under MIT or Apache is used under MIT, whose text is shorter. A few crates have no text of their licence: they get that of
        this repository, with the authors that their manifests name.
"""

import html
import pathlib
import re

from .common import ROOT, Failure, output
from .targets import Target

FILE = "LICENSE-THIRD-PARTY"
TEXT = re.compile(r"(UN)?LICEN[CS]E|COPYING|COPYRIGHT|NOTICE", re.IGNORECASE)
# C in a crate whose licence is at the end of a header.
HEADERS = {"lua-src": "lua-5.1*/lua.h"}
HEAD = "redlatch contains the crates and libraries that are named here. Before each text are those that it is the licence of.\n"
# C libraries in programs, by the ends of triples. A program for glibc or macOS has none in it.
RUNTIMES = {"-musl": "musl", "-windows-gnu": "mingw-w64"}


def is_text(file: pathlib.Path) -> bool:
    return bool(TEXT.match(file.name) or file.parent.name == "LICENSES") and file.is_file() and file.suffix != ".rs"


def texts(package: dict) -> list[str]:
    """The texts of a crate, those of the C in it included."""
    folder = pathlib.Path(package["manifest_path"]).parent
    files = sorted(file for file in folder.rglob("*") if is_text(file))
    if " OR " in (package["license"] or "").replace("/", " OR "):
        others = [file for file in files if "APACHE" not in file.name.upper()]
        files = others or files
    found = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    for header in folder.glob(HEADERS.get(package["name"], "-")):
        found.append("Copyright" + header.read_text(encoding="utf-8").rsplit("Copyright", 1)[1])
    return found or [standard(package)]


def standard(package: dict) -> str:
    """The text of a licence that a crate names and does not have."""
    choices = re.split(r" OR |/", package["license"])
    if "MIT" not in choices and "Apache-2.0" in choices:
        return (ROOT / "LICENSE-APACHE").read_text(encoding="utf-8")
    if "MIT" not in choices:
        raise Failure(f"{package['name']} has no text of its licence, {package['license']}: packages/release/licences.py must have one")
    text = (ROOT / "LICENSE-MIT").read_text(encoding="utf-8")
    authors = ", ".join(package["authors"]) or f"the authors of {package['name']}"
    return re.sub(r"Copyright .*", f"Copyright (c) {authors}", text)


def runtimes(target: Target) -> dict[str, str]:
    """The texts of the libraries that are no crates, by their names."""
    file = pathlib.Path(output("rustc", "--print", "sysroot").strip()) / "share/doc/rust/COPYRIGHT-library.html"
    if not file.exists():
        raise Failure(f"{file} is missing, which has the licences of Rust's standard library: install Rust with rustup")
    page = html.unescape(re.sub(r"<[^>]*>", "", file.read_text(encoding="utf-8")))
    found = {"Rust's standard library": re.sub(r"\n\s+\n", "\n\n", page).strip()}
    folder = ROOT / "packages/release/runtimes"
    names = [name for end, name in RUNTIMES.items() if target.triple.endswith(end)]
    return found | {name: (folder / f"{name}.txt").read_text(encoding="utf-8") for name in names}


def collected(packages: list[dict], target: Target) -> str:
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
    parts += [f"{'=' * 80}\n{name}\n\n{text}\n" for name, text in runtimes(target).items()]
    return "\n".join([HEAD, *parts])
