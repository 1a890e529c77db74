"""Where the project lives, as the packages tell it: `[workspace.package]` and `[workspace.metadata.project]` of Cargo.toml.

There is no other place for that. While a field is empty, packages leave out what it would say, and `--publishable` names it.
"""

import dataclasses
import functools
import pathlib
import re
import tomllib
from collections.abc import Collection

from .common import ROOT, Failure, tracked

LINK = re.compile(r"\]\((?![a-z]+:|#)([^)]+)\)")
# Without what ends or starts something in the files that have it: YAML, JSON, TOML, XML, Markdown, shell, spec files, lists of
# addresses, and code of Ruby. The name of a repository gets `.git` and paths behind it.
PART = r"""[^\s"'`#%,;:<>{}()\[\]\\@?*|$]+"""
WEB = re.compile(rf"https://{PART}\.{PART}(?<!/)(?<!\.git)")
ADDRESS = re.compile(rf"{PART}@{PART}\.{PART}")
NAME = r"""[^\s\x00-\x1f"%,;:<>()\[\]\\@]+"""
# What each field must be, if it is not empty.
FORMS = {
    "repository": WEB,
    "homepage": WEB,
    "documentation": WEB,
    "maintainer": re.compile(rf"{NAME}( {NAME})* <{ADDRESS.pattern}>"),
    "security": re.compile(f"{WEB.pattern}|{ADDRESS.pattern}"),
}
PICTURES = [".png", ".svg"]


@dataclasses.dataclass(frozen=True)
class Home:
    """A field is empty until there is a public place."""

    repository: str
    homepage: str
    documentation: str
    maintainer: str
    security: str

    @property
    def person(self) -> tuple[str, str]:
        """The name and the address of the maintainer; none while there is no maintainer."""
        name, _, address = self.maintainer.partition(" <")
        return name, address.removesuffix(">")

    @property
    def urls(self) -> dict[str, str]:
        """The fields with addresses that are not empty, by the names that PyPI shows."""
        names = {"Repository": self.repository, "Homepage": self.homepage, "Documentation": self.documentation}
        return {name: url for name, url in names.items() if url}

    def linked(self, text: str, folder: pathlib.Path, version: str, there: Collection[str] = ()) -> str:
        """A page of `folder` whose links lead to the repository, but those to files that are `there`, beside it in the package."""

        def absolute(link: re.Match[str]) -> str:
            file, hash_, heading = link[1].partition("#")
            path = (folder / file).resolve().relative_to(ROOT).as_posix()
            if path in there:
                return link[0]
            kind = "raw" if pathlib.Path(path).suffix in PICTURES else "blob"
            return f"]({self.repository}/{kind}/v{version}/{path}{hash_}{heading})"

        return LINK.sub(absolute, text) if self.repository else text

    def readme(self, folder: pathlib.Path, version: str) -> str:
        """The README of a folder, linked."""
        return self.linked((folder / "README.md").read_text(encoding="utf-8"), folder, version)


def fields() -> dict[str, str]:
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]
    every = workspace["package"] | workspace["metadata"]["project"]
    return {name: every[name] for name in FORMS}


@functools.cache
def home() -> Home:
    """The fields, each of its form or empty."""
    found = fields()
    for name, form in FORMS.items():
        if found[name] and not form.fullmatch(found[name]):
            wanted = "an https address, or for people Name <address>, without quotes, commas, or a / or .git at its end"
            raise Failure(f"{name} in Cargo.toml is '{found[name]}': it must be {wanted}")
    return Home(**found)


# Files of the repository that tests write from the fields, and what they must name.
WRITTEN = {"README.md": "repository", "SECURITY.md": "security", ".github/CODEOWNERS": "maintainer"}


# What pages say until there is a version in the registries.
UNPUBLISHED = re.compile(r"(published|released)\s+yet")
PAGES = ["*.md", "packages/deploy/chart/values.yaml"]


def check_publishable() -> None:
    """What is published tells where the project lives, and so do the files that have been written from the fields. No page denies it."""
    empty = [name for name in FORMS if not getattr(home(), name)]
    if empty:
        raise Failure(f"nothing can be published: {', '.join(empty)} in Cargo.toml must be set")
    named = {"maintainer": home().person[1]}
    for file, name in WRITTEN.items():
        if named.get(name, getattr(home(), name)) not in (ROOT / file).read_text(encoding="utf-8"):
            raise Failure(f"{file} does not name the {name} of Cargo.toml: UPDATE_README=1 cargo test --test suite readme writes it")
    denying = [page for page in tracked(*PAGES) if UNPUBLISHED.search((ROOT / page).read_text(encoding="utf-8"))]
    if denying:
        raise Failure(f"pages say that nothing is published or released yet: {', '.join(denying)}")
