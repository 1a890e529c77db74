"""The packages for Node: the lock client; and for tests the main one, and one for each platform, by `packages/node/build.mjs`."""

import json
import pathlib
import shutil
import tempfile

from .archive import copy_licences
from .common import ROOT, Release, check_version, output
from .program import Program

CLIENT = ROOT / "packages/clients/node"


def pack(release: Release, program: Program) -> list[pathlib.Path]:
    """Packs the package for Node, and that of the platform around the program."""
    with tempfile.TemporaryDirectory() as folder:
        output("node", ROOT / "packages/node/build.mjs", program.path, folder, program.target.npm)
        packages = sorted(pathlib.Path(folder).glob("*.tgz"))
        return [pathlib.Path(shutil.copyfile(package, release.out / package.name)) for package in packages]


def pack_client(release: Release) -> list[pathlib.Path]:
    """Packs the lock client, as `npm publish` takes it."""
    manifest = CLIENT / "package.json"
    check_version(release, manifest, json.loads(manifest.read_text(encoding="utf-8"))["version"])
    with tempfile.TemporaryDirectory() as folder:
        for name in ["package.json", "README.md", "index.js", "index.d.ts"]:
            shutil.copyfile(CLIENT / name, pathlib.Path(folder, name))
        shutil.copytree(CLIENT / "lib", pathlib.Path(folder, "lib"))
        copy_licences(pathlib.Path(folder))
        name = output("npm", "pack", "--silent", "--pack-destination", release.out, folder=pathlib.Path(folder)).strip()
    return [release.out / name]
