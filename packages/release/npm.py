"""The packages for Node: the lock client; and for tests the main one, and one for each platform, by `packages/node/build.mjs`."""

import json
import pathlib
import shutil
import tempfile

from . import licences
from .archive import copy_licences, copy_tracked, set_modes
from .common import ROOT, Release, check_version, output
from .home import home
from .program import Program
from .sbom import Papers

CLIENT = ROOT / "packages/clients/node"
TESTS = ROOT / "packages/node"


def fields(folder: str) -> dict:
    """What package.json tells of the project."""
    repository = {"type": "git", "url": f"git+{home().repository}.git", "directory": folder}
    found = {"homepage": home().homepage, "repository": repository if home().repository else None, "author": home().maintainer}
    return {name: value for name, value in found.items() if value}


def write_page(source: pathlib.Path, folder: str, release: Release) -> pathlib.Path:
    """The README of a package, in this folder."""
    page = pathlib.Path(folder, "README.md")
    page.write_text(home().readme(source, release.version), encoding="utf-8")
    return page


def pack(release: Release, program: Program, papers: Papers) -> list[pathlib.Path]:
    """Packs the package for Node, and that of the platform around the program."""
    with tempfile.TemporaryDirectory() as folder:
        texts = pathlib.Path(folder, licences.FILE)
        texts.write_text(papers.licences, encoding="utf-8")
        page = write_page(TESTS, folder, release)
        more = json.dumps(fields("packages/node"))
        output("node", TESTS / "build.mjs", program.path, folder, program.target.npm, more, texts, page)
        packages = sorted(pathlib.Path(folder).glob("*.tgz"))
        return [pathlib.Path(shutil.copyfile(package, release.out / package.name)) for package in packages]


def pack_client(release: Release) -> list[pathlib.Path]:
    """Packs the lock client, as `npm publish` takes it."""
    manifest = CLIENT / "package.json"
    check_version(release, manifest, json.loads(manifest.read_text(encoding="utf-8"))["version"])
    with tempfile.TemporaryDirectory() as folder:
        write_page(CLIENT, folder, release)
        for name in ["index.js", "index.d.ts"]:
            shutil.copyfile(CLIENT / name, pathlib.Path(folder, name))
        about = json.loads(manifest.read_text(encoding="utf-8")) | fields("packages/clients/node")
        pathlib.Path(folder, "package.json").write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        copy_tracked("packages/clients/node/lib", pathlib.Path(folder, "lib"))
        copy_licences(pathlib.Path(folder))
        set_modes(pathlib.Path(folder), release.seconds)
        name = output("npm", "pack", "--silent", "--pack-destination", release.out, folder=pathlib.Path(folder)).strip()
    return [release.out / name]
