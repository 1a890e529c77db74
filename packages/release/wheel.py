"""Wheels around a program, the wheel of the client, and the sdist.

A wheel is assembled here and not by maturin, which builds a program for each: one program serves the archive, the package for Node
and the wheel, and a wheel for any platform is made on any machine. The metadata are those of packages/python/pyproject.toml.

Source  https://packaging.python.org, "Binary distribution format", "Core metadata", "Platform compatibility tags"; PEP 770.
"""

import base64
import hashlib
import pathlib
import tempfile
import tomllib
import zipfile

from . import licences
from .archive import LEVEL, gzipped, tar_of, zip_entry
from .common import LICENCES, ROOT, Failure, Release, check_version, tracked
from .home import home
from .program import Program
from .sbom import Papers
from .targets import GLIBC_MIN

PACKAGE = ROOT / "packages/python"
MODULE = PACKAGE / "python/redlatch"
CLIENT = ROOT / "packages/clients/python"
# A static program runs with any C library: these are the oldest tags that pip knows.
STATIC_TAGS = ["manylinux_2_17_{machine}", "manylinux2014_{machine}", "musllinux_1_1_{machine}"]
# In the sdist pyproject.toml is at the top.
MOVED = {
    '"../../Cargo.toml"': '"Cargo.toml"',
    'python-source = "python"': 'python-source = "packages/python/python"',
    'readme = "README.md"': 'readme = "packages/python/README.md"',
}
# The oldest macOS that there are tags for: Rust builds for no older one.
MACOS_MIN = {"x86_64": (10, 12), "aarch64": (11, 0)}
MACOS_MACHINES = {"x86_64": "x86_64", "aarch64": "arm64"}


def tags(program: Program) -> list[str]:
    """The platforms that pip installs the wheel on."""
    target = program.target
    if target.is_static:
        return [tag.format(machine=target.machine) for tag in STATIC_TAGS]
    if target.system == "linux":
        major, minor = max(program.needs, GLIBC_MIN)
        return [f"manylinux_{major}_{minor}_{target.machine}"]
    if target.system == "windows":
        return [{"x86_64": "win_amd64", "aarch64": "win_arm64"}[target.machine]]
    major, minor = max(program.needs, MACOS_MIN[target.machine])
    # Since macOS 11 tags have no second number.
    return [f"macosx_{major}_{minor if major == 10 else 0}_{MACOS_MACHINES[target.machine]}"]


def project(package: pathlib.Path = PACKAGE) -> dict:
    return tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def metadata(version: str, package: pathlib.Path = PACKAGE, texts: list[str] = LICENCES) -> str:
    """METADATA, and PKG-INFO: what the index shows."""
    about = project(package)
    maintainer = home().maintainer
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {about['name']}",
        f"Version: {version}",
        f"Summary: {about['description']}",
        f"Keywords: {','.join(about['keywords'])}",
        f"License-Expression: {about['license']}",
        *[f"License-File: {name}" for name in texts],
        *([f"Maintainer-email: {maintainer}"] if maintainer else []),
        *[f"Project-URL: {name}, {url}" for name, url in home().urls.items()],
        *[f"Classifier: {classifier}" for classifier in about["classifiers"]],
        f"Requires-Python: {about['requires-python']}",
        *[f"Requires-Dist: {name}" for name in about.get("dependencies", [])],
        "Description-Content-Type: text/markdown; charset=UTF-8; variant=GFM",
    ]
    return "\n".join(lines) + "\n\n" + readme(version, package)


def readme(version: str, package: pathlib.Path) -> str:
    return home().readme(package, version)


def entry_points() -> str:
    groups = project()["entry-points"]
    lines = [line for name, points in groups.items() for line in [f"[{name}]", *[f"{key}={value}" for key, value in points.items()]]]
    return "".join(f"{line}\n" for line in lines)


def module_files(module: pathlib.Path = MODULE) -> list[pathlib.Path]:
    return sorted(ROOT / file for file in tracked(module.relative_to(ROOT).as_posix()))


def contents(release: Release, program: Program, papers: Papers) -> dict[str, bytes]:
    """The files of a wheel but RECORD. The program is a script, which pip puts beside Python."""
    about = f"redlatch-{release.version}"
    wheel = ["Wheel-Version: 1.0", "Generator: redlatch", "Root-Is-Purelib: false"]
    wheel += [f"Tag: py3-none-{tag}" for tag in tags(program)]
    files = {f"redlatch/{file.relative_to(MODULE).as_posix()}": file.read_bytes() for file in module_files()}
    files[f"{about}.data/scripts/{program.target.program}"] = program.path.read_bytes()
    files[f"{about}.dist-info/METADATA"] = metadata(release.version, texts=[*LICENCES, licences.FILE]).encode()
    files[f"{about}.dist-info/WHEEL"] = ("\n".join(wheel) + "\n").encode()
    files[f"{about}.dist-info/entry_points.txt"] = entry_points().encode()
    files[f"{about}.dist-info/sboms/redlatch.cdx.json"] = papers.bill.encode()
    for name in LICENCES:
        files[f"{about}.dist-info/licenses/{name}"] = (ROOT / name).read_bytes()
    files[f"{about}.dist-info/licenses/{licences.FILE}"] = papers.licences.encode()
    return files


def record(files: dict[str, bytes], name: str) -> bytes:
    """RECORD: a line for each file, its own without a digest."""

    def digest(data: bytes) -> str:
        return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()

    lines = [f"{file},sha256={digest(data)},{len(data)}\n" for file, data in files.items()]
    return "".join([*lines, f"{name},,\n"]).encode()


def pack(release: Release, program: Program, papers: Papers) -> pathlib.Path:
    """Writes the wheel of a program."""
    return write(release, "redlatch", ".".join(tags(program)), contents(release, program, papers))


def pack_client(release: Release) -> list[pathlib.Path]:
    """Writes the wheel of the lock client: its sources, for any platform."""
    check_version(release, CLIENT / "pyproject.toml", project(CLIENT)["version"])
    about = f"redlatch_client-{release.version}.dist-info"
    module = CLIENT / "redlatch_client"
    files = {f"{module.name}/{file.relative_to(module).as_posix()}": file.read_bytes() for file in module_files(module)}
    files[f"{about}/METADATA"] = metadata(release.version, CLIENT).encode()
    files[f"{about}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: redlatch\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    for name in LICENCES:
        files[f"{about}/licenses/{name}"] = (ROOT / name).read_bytes()
    return [write(release, "redlatch_client", "any", files)]


def write(release: Release, name: str, platform: str, files: dict[str, bytes]) -> pathlib.Path:
    record_file = f"{name}-{release.version}.dist-info/RECORD"
    files[record_file] = record(files, record_file)
    wheel = release.out / f"{name}-{release.version}-py3-none-{platform}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file, data in files.items():
            is_program = ".data/scripts/" in file
            archive.writestr(zip_entry(file, release.seconds, is_program), data, compresslevel=LEVEL)
    return wheel


def sdist_sources() -> list[str]:
    """What cargo and maturin read. The image is built from the same files: .dockerignore lists them."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    read_by_cargo = [f":(glob){line[1:]}" for line in lines if line.startswith("!")]
    return tracked(*read_by_cargo, "README.md", "packages/python/python", "packages/python/README.md")


def pack_sdist(release: Release) -> pathlib.Path:
    """Writes the sdist: pip builds the wheel of its machine from it, with maturin and cargo."""
    name = f"redlatch-{release.version}"
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent) / name
        for file in sdist_sources():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes((ROOT / file).read_bytes())
        text = (PACKAGE / "pyproject.toml").read_text(encoding="utf-8")
        for old, new in MOVED.items():
            if text.count(old) != 1:
                raise Failure(f"pyproject.toml has no single '{old}', which the sdist replaces")
            text = text.replace(old, new)
        person, address = home().person
        line = f'maintainers = [{{ name = "{person}", email = "{address}" }}]\n' if person else ""
        text = text.replace("[project]\n", f"[project]\n{line}", 1)
        text += "".join(["\n[project.urls]\n", *[f'{name} = "{url}"\n' for name, url in home().urls.items()]])
        (folder / "pyproject.toml").write_text(text, encoding="utf-8")
        (folder / "packages/python/README.md").write_text(readme(release.version, PACKAGE), encoding="utf-8")
        (folder / "PKG-INFO").write_text(metadata(release.version), encoding="utf-8")
        archive = release.out / f"{name}.tar.gz"
        archive.write_bytes(gzipped(tar_of(pathlib.Path(parent), "", release.seconds)))
    return archive
