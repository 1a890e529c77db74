"""Archives that are the same bytes for the same files and date; and the tar.gz or zip of a platform.

Rule    entries are sorted, belong to root, and have the time of the release. Programs may be executed, nothing else.
"""

import gzip
import io
import os
import pathlib
import shutil
import tarfile
import tempfile
import zipfile

from . import licences
from .common import LICENCES, ROOT, Release, output, tracked
from .home import home
from .sbom import Papers
from .targets import Target

DOCUMENTS = ["README.md", "docs", "packages/deploy"]
COMPLETIONS = {"bash": "redlatch.bash", "fish": "redlatch.fish", "zsh": "_redlatch"}
COMPLETIONS_OF_WINDOWS = {"powershell": "_redlatch.ps1", "bash": "redlatch.bash"}
IS_PROGRAM = 0o111
# What dpkg runs.
SCRIPTS = ["postinst", "prerm", "postrm"]
PROGRAMS = ["redlatch", "redlatch.exe"]
# 9 takes three times as long for half a percent.
LEVEL = 6
# A zip has no older times.
ZIP_SECONDS_MIN = 315_532_800


def subcommands(program: pathlib.Path) -> list[str]:
    """The names in the list of `--help`."""
    listed = output(program, "--help").split("Commands:\n")[1].split("\n\n")[0]
    return [line.split()[0] for line in listed.splitlines() if line.split()[0] != "help"]


def write_pages(folder: pathlib.Path, host_program: pathlib.Path) -> None:
    """Man pages, by the names that `man` finds them by."""
    folder.mkdir(parents=True)
    (folder / "redlatch.1").write_text(output(host_program, "man"), encoding="utf-8")
    for name in subcommands(host_program):
        (folder / f"redlatch-{name}.1").write_text(output(host_program, "man", name), encoding="utf-8")


def write_completions(folder: pathlib.Path, host_program: pathlib.Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    for shell, name in files.items():
        (folder / name).write_text(output(host_program, "completions", shell), encoding="utf-8")


def copy_file(file: pathlib.Path, to: pathlib.Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, to)


def copy_program(program: pathlib.Path, to: pathlib.Path) -> None:
    copy_file(program, to)
    to.chmod(0o755)


def copy_licences(folder: pathlib.Path, papers: Papers | None = None) -> None:
    """Ours, and those of the crates in a program if there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in LICENCES:
        shutil.copyfile(ROOT / name, folder / name)
    if papers:
        (folder / licences.FILE).write_text(papers.licences, encoding="utf-8")


def copy_tracked(name: str, to: pathlib.Path) -> None:
    """What the repository has below a folder, without what else is there."""
    for file in tracked(name):
        copy_file(ROOT / file, to / pathlib.Path(file).relative_to(name))


def set_modes(root: pathlib.Path, seconds: int) -> None:
    """Modes that neither the umask of this process nor that of the clone has a part in, and the time of the release."""
    for path in [root, *root.rglob("*")]:
        is_run = path.name in (SCRIPTS if path.parent.name == "DEBIAN" else PROGRAMS if path.parent.name == "bin" else [])
        path.chmod(0o755 if path.is_dir() or is_run else 0o644)
        os.utime(path, (seconds, seconds))


def repacked(file: pathlib.Path, seconds: int, pom: str) -> bytes:
    """A jar with the entries that another program has put into it, but our POM, modes and times, and no folders."""
    packed = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(packed, "w") as archive:
        for name in [name for name in old.namelist() if not name.endswith("/")]:
            archive.writestr(zip_entry(name, seconds, False), pom if name.endswith("/pom.xml") else old.read(name), compresslevel=LEVEL)
    return packed.getvalue()


def copy_documents(folder: pathlib.Path, version: str) -> None:
    """The links of the pages to what the archive has not lead to the repository."""
    files = tracked(*DOCUMENTS, ":(exclude)*.py")
    # The others are in another place of the archive.
    there = {file for file in files if not file.startswith("packages/")}
    for file in files:
        place = folder / file.removeprefix("packages/")
        copy_file(ROOT / file, place)
        if place.suffix == ".md":
            text = place.read_text(encoding="utf-8")
            place.write_text(home().linked(text, (ROOT / file).parent, version, there), encoding="utf-8")


def stage(folder: pathlib.Path, program: pathlib.Path, target: Target, host_program: pathlib.Path) -> None:
    """Puts what the archive of a platform has beside its documents into a folder. Windows has no `man`."""
    copy_program(program, folder / target.program)
    if target.system == "windows":
        write_completions(folder / "completions", host_program, COMPLETIONS_OF_WINDOWS)
    else:
        write_pages(folder / "man", host_program)
        write_completions(folder / "completions", host_program, COMPLETIONS)


def mode(path: pathlib.Path) -> int:
    return 0o755 if path.is_dir() or path.stat().st_mode & IS_PROGRAM and is_program(path) else 0o644


def is_program(path: pathlib.Path) -> bool:
    """A clone on some systems has all files executable: only these are."""
    return path.stem == "redlatch" and path.suffix in ("", ".exe")


def tar_of(folder: pathlib.Path, prefix: str, seconds: int, owners: dict[str, tuple[int, int]] | None = None) -> bytes:
    """All below `folder` as a tar; `prefix` is put in front of the names. `owners` has the users of names, and the modes."""

    def plain(entry: tarfile.TarInfo, path: pathlib.Path) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = seconds
        entry.mode = 0o777 if entry.issym() else mode(path)
        if owners and entry.name in owners:
            entry.uid, entry.mode = owners[entry.name]
            entry.gid = entry.uid
        return entry

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            name = prefix + path.relative_to(folder).as_posix()
            tar.add(path, name, recursive=False, filter=lambda entry, path=path: plain(entry, path))
    return packed.getvalue()


def gzipped(data: bytes) -> bytes:
    return gzip.compress(data, LEVEL, mtime=0)


def zip_entry(name: str, seconds: int, executable: bool) -> zipfile.ZipInfo:
    """An entry of a zip: as made on Unix, deflated."""
    moment = Release("", max(seconds, ZIP_SECONDS_MIN), pathlib.Path()).moment
    entry = zipfile.ZipInfo(name, (moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second))
    entry.create_system = 3
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (0o100755 if executable else 0o100644) << 16
    return entry


def zip_of(folder: pathlib.Path, prefix: str, seconds: int) -> bytes:
    """All files below `folder` as a zip; `prefix` is put in front of the names."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = prefix + path.relative_to(folder).as_posix()
            archive.writestr(zip_entry(name, seconds, mode(path) == 0o755), path.read_bytes(), compresslevel=LEVEL)
    return packed.getvalue()


def pack(release: Release, program: pathlib.Path, target: Target, host_program: pathlib.Path, papers: Papers) -> pathlib.Path:
    """Writes the archive of a platform: a zip for Windows, else a tar.gz."""
    name = f"redlatch-{release.version}-{target.triple}"
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent)
        stage(folder / name, program, target, host_program)
        copy_documents(folder / name, release.version)
        (folder / name / "sbom.cdx.json").write_text(papers.bill, encoding="utf-8")
        copy_licences(folder / name, papers)
        if target.system == "windows":
            file = release.out / f"{name}.zip"
            file.write_bytes(zip_of(folder, "", release.seconds))
        else:
            file = release.out / f"{name}.tar.gz"
            file.write_bytes(gzipped(tar_of(folder, "", release.seconds)))
    return file
