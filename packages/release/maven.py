"""The extension for JUnit and the lock client, with sources, documents and POMs; and the jars with the program of a platform.

Maven makes the jars of classes. Those of platforms, whose classifier is the platform, have none, so that they are made without Java.
What else Maven Central asks of a POM is that of the project; the signatures are made by who publishes.
"""

import pathlib
import tempfile
import xml.etree.ElementTree
from xml.sax.saxutils import escape

from .archive import copy_licences, copy_program, copy_tracked, repacked, zip_of
from .common import ROOT, Release, check_version, output
from .home import home
from .program import Program
from .sbom import Papers

CLIENT = ROOT / "packages/clients/java"
EXTENSION = ROOT / "packages/java"
JAVADOC = "org.apache.maven.plugins:maven-javadoc-plugin:3.11.2:javadoc"
PLACE = """  <url>{url}</url>
  <scm>
    <url>{repository}</url>
    <connection>scm:git:{repository}.git</connection>
  </scm>
  <developers>
    <developer>
      <name>{name}</name>
      <email>{address}</email>
    </developer>
  </developers>
"""


def classifier(program: Program) -> str:
    """As dev.redlatch.junit.Binary has it."""
    return f"{program.target.system}-{program.target.machine}"


def pack(release: Release, program: Program, papers: Papers) -> pathlib.Path:
    """Writes the jar of a platform. That for Linux has the static program, which runs with any C library."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        inside = root / "META-INF/redlatch" / classifier(program)
        copy_program(program.path, inside / program.target.program)
        copy_licences(root / "META-INF", papers)
        (inside / "sbom.cdx.json").write_text(papers.bill, encoding="utf-8")
        manifest = ["Manifest-Version: 1.0", "Implementation-Title: redlatch", f"Implementation-Version: {release.version}"]
        (root / "META-INF/MANIFEST.MF").write_bytes("\r\n".join([*manifest, "", ""]).encode())
        file = release.out / f"redlatch-junit-{release.version}-{classifier(program)}.jar"
        file.write_bytes(zip_of(root, "", release.seconds))
    return file


def pom(folder: pathlib.Path) -> str:
    """The POM, with what Central asks for besides, as far as there is a place."""
    text, place, (name, address) = (folder / "pom.xml").read_text(encoding="utf-8"), home(), home().person
    if not (place.homepage and place.repository and name):
        return text
    words = {"url": place.homepage, "repository": place.repository, "name": name, "address": address}
    return text.replace("\n  <properties>", PLACE.format(**{key: escape(word) for key, word in words.items()}) + "\n  <properties>", 1)


def pack_client(release: Release) -> list[pathlib.Path]:
    return pack_project(release, CLIENT)


def pack_extension(release: Release) -> list[pathlib.Path]:
    return pack_project(release, EXTENSION)


def pack_project(release: Release, project: pathlib.Path) -> list[pathlib.Path]:
    """Writes the jars of classes, sources and documents, and the POM, under the names that a Maven repository has."""
    about = xml.etree.ElementTree.parse(project / "pom.xml")
    check_version(release, project / "pom.xml", about.findtext("{*}version") or "")
    name = f"{about.findtext('{*}artifactId')}-{release.version}"
    jar, sources, javadoc, copy = (release.out / f"{name}{end}" for end in [".jar", "-sources.jar", "-javadoc.jar", ".pom"])
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent)
        made = [f"-Dbuild.folder={folder}", f"-Dproject.build.outputTimestamp={release.date}", "-Dnotimestamp=true"]
        output("mvn", "--batch-mode", "--quiet", "--file", project / "pom.xml", *made, "package", JAVADOC)
        jar.write_bytes(repacked(folder / jar.name, release.seconds, pom(project)))
        (documents,) = [file.parent for file in folder.rglob("apidocs/index.html")]
        copy_licences(documents / "META-INF")
        javadoc.write_bytes(zip_of(documents, "", release.seconds))
    sources.write_bytes(sources_of(project, release.seconds))
    copy.write_text(pom(project), encoding="utf-8")
    return [jar, sources, javadoc, copy]


def sources_of(project: pathlib.Path, seconds: int) -> bytes:
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent)
        copy_tracked((project / "src/main/java").relative_to(ROOT).as_posix(), folder)
        copy_licences(folder / "META-INF")
        return zip_of(folder, "", seconds)
