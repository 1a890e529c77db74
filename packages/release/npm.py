"""The packages for Node, which `packages/node/build.mjs` packs: the main one, and one for each platform."""

import pathlib
import shutil
import tempfile

from .common import ROOT, Release, output
from .program import Program


def pack(release: Release, program: Program) -> list[pathlib.Path]:
    """Packs the package for Node, and that of the platform around the program."""
    with tempfile.TemporaryDirectory() as folder:
        output("node", ROOT / "packages/node/build.mjs", program.path, folder, program.target.npm)
        packages = sorted(pathlib.Path(folder).glob("*.tgz"))
        return [pathlib.Path(shutil.copyfile(package, release.out / package.name)) for package in packages]
