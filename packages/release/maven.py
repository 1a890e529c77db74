"""Jars with the program of a platform, beside that of `packages/java`: the platform is their classifier.

Maven makes the jar of the extension. These have no classes, so that they are made without Java.
"""

import pathlib
import tempfile

from .archive import copy_licences, copy_program, zip_of
from .common import Release
from .program import Program


def classifier(program: Program) -> str:
    """As dev.redlatch.junit.Binary has it."""
    return f"{program.target.system}-{program.target.machine}"


def pack(release: Release, program: Program, bill: str) -> pathlib.Path:
    """Writes the jar of a platform. That for Linux has the static program, which runs with any C library."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        inside = root / "META-INF/redlatch" / classifier(program)
        copy_program(program.path, inside / program.target.program)
        copy_licences(root / "META-INF")
        (inside / "sbom.cdx.json").write_text(bill, encoding="utf-8")
        manifest = ["Manifest-Version: 1.0", "Implementation-Title: redlatch", f"Implementation-Version: {release.version}"]
        (root / "META-INF/MANIFEST.MF").write_bytes("\r\n".join([*manifest, "", ""]).encode())
        file = release.out / f"redlatch-junit-{release.version}-{classifier(program)}.jar"
        file.write_bytes(zip_of(root, "", release.seconds))
    return file
