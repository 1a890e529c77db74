"""The modules for Go, of the lock client and of the package for tests, as the files of a module proxy.

Unpacked, `GOPROXY=file:///FOLDER` serves them.

Source  https://go.dev/ref/mod, "GOPROXY protocol", "Module zip files".
"""

import json
import pathlib
import tempfile

from .archive import copy_file, zip_of
from .common import ROOT, Release, check_version, tracked
from .home import home

CLIENT = ROOT / "packages/clients/go"
LOCKS = "redlatch.dev/locks"
# Modules by their folders. What `tests` of the client has is for the check alone.
MODULES = {CLIENT: LOCKS, CLIENT / "gocronlocks": f"{LOCKS}/gocronlocks", ROOT / "packages/go": "redlatch.dev/redlatchtest"}
PUBLISHED = ["*.go", "examples/*.go", "go.sum", "README.md", "LICENSE-*"]


def pack_client(release: Release) -> list[pathlib.Path]:
    """Writes the modules, and all that a proxy tells of them."""
    manifest = CLIENT / "gocronlocks/go.mod"
    check_version(release, manifest, required(manifest.read_text(encoding="utf-8")))
    file = release.out / f"redlatch-go-{release.version}.zip"
    with tempfile.TemporaryDirectory() as folder:
        write_proxy(pathlib.Path(folder), f"v{release.version}", release.seconds)
        file.write_bytes(zip_of(pathlib.Path(folder), "", release.seconds))
    return [file]


def required(manifest: str) -> str:
    """The version of the locks that a module requires, without its `v`; empty if it requires none."""
    words = [line.split() for line in manifest.splitlines()]
    return next((line[1].removeprefix("v") for line in words if len(line) == 2 and line[0] == LOCKS), "")


def write_proxy(proxy: pathlib.Path, version: str, seconds: int) -> None:
    for root, module in MODULES.items():
        out = proxy / module / "@v"
        out.mkdir(parents=True)
        manifest = published(root / "go.mod", version)
        (out / f"{version}.mod").write_text(manifest, encoding="utf-8")
        (out / f"{version}.info").write_text(json.dumps({"Version": version}), encoding="utf-8")
        (out / "list").write_text(f"{version}\n", encoding="utf-8")
        (out / f"{version}.zip").write_bytes(module_zip(root, f"{module}@{version}/", manifest, seconds, version))


def published(file: pathlib.Path, version: str) -> str:
    """A go.mod that requires this version of the locks, wherever they are."""
    text = file.read_text(encoding="utf-8")
    text = text.replace(f"{LOCKS} v{required(text)}\n", f"{LOCKS} {version}\n")
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("replace "))


def is_in_module(file: pathlib.Path, root: pathlib.Path) -> bool:
    """Not in a module of its own, such as the examples of the package for tests."""
    return file.parent == root or not (file.parent / "go.mod").exists()


def module_zip(root: pathlib.Path, prefix: str, manifest: str, seconds: int, version: str) -> bytes:
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent)
        (folder / "go.mod").write_text(manifest, encoding="utf-8")
        patterns = [f":(glob){root.relative_to(ROOT).as_posix()}/{pattern}" for pattern in PUBLISHED]
        for file in [ROOT / name for name in tracked(*patterns)]:
            if is_in_module(file, root):
                copy_file(file, folder / file.relative_to(root))
        for readme in folder.glob("README.md"):
            readme.write_text(home().readme(root, version.removeprefix("v")), encoding="utf-8")
        return zip_of(folder, prefix, seconds)
