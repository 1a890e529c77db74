"""Jars with the program of a platform, beside that of `packages/java`: the platform is their classifier. And the lock client.

Maven makes the jars of the extension and of the client. Those of platforms have no classes, so that they are made without Java.
"""

import pathlib
import shutil
import tempfile
import xml.etree.ElementTree

from .archive import copy_licences, copy_program, zip_of
from .common import ROOT, Release, check_version, output
from .program import Program

CLIENT = ROOT / "packages/clients/java"


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


def pack_client(release: Release) -> list[pathlib.Path]:
    """Writes the jar of the lock client, that of its sources, and its POM, under the names that a Maven repository has."""
    pom = CLIENT / "pom.xml"
    check_version(release, pom, xml.etree.ElementTree.parse(pom).findtext("{*}version") or "")
    name = f"redlatch-client-{release.version}"
    jar, sources, copy = (release.out / f"{name}{end}" for end in [".jar", "-sources.jar", ".pom"])
    with tempfile.TemporaryDirectory() as folder:
        made = [f"-Dbuild.folder={folder}", f"-Dproject.build.outputTimestamp={release.date}"]
        output("mvn", "--batch-mode", "--quiet", "--file", pom, *made, "package")
        shutil.copyfile(pathlib.Path(folder, jar.name), jar)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(CLIENT / "src/main/java", folder, dirs_exist_ok=True)
        copy_licences(pathlib.Path(folder, "META-INF"))
        sources.write_bytes(zip_of(pathlib.Path(folder), "", release.seconds))
    shutil.copyfile(pom, copy)
    return [jar, sources, copy]
