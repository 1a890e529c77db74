"""Packages of Linux distributions around a static program: deb by dpkg-deb, rpm by rpmbuild.

Both are the programs that define these forms, Debian has both (`apt-get install rpm`), and they pack for any processor. cargo-deb and
cargo-generate-rpm would first be built for minutes. The service is not started by an installation, and is stopped before a removal.
"""

import gzip
import pathlib
import shutil
import subprocess
import tempfile

from .archive import copy_licences, copy_program, write_completions, write_pages
from .common import LICENCES, ROOT, SUMMARY, Failure, Release, output
from .program import Program

MAINTAINER = "redlatch contributors <redlatch@localhost>"
DESCRIPTION = [
    "Lock clients of Redis use it unchanged, and it tells who holds a lock, for how",
    "long, and with which fencing token. Locks outlive a kill and a restart.",
]
UNITS = ["redlatch.service", "redlatch.socket"]
STOP = "if [ -d /run/systemd/system ]; then systemctl disable --now redlatch.socket redlatch.service || true; fi"
# Where zsh and fish look: not the same in all distributions.
DEBIAN_COMPLETIONS = {"fish": "fish/vendor_completions.d/redlatch.fish", "zsh": "zsh/vendor-completions/_redlatch"}
RPM_COMPLETIONS = {"fish": "fish/vendor_completions.d/redlatch.fish", "zsh": "zsh/site-functions/_redlatch"}
COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: redlatch
Comment: The program contains crates with licences of their own: sbom.cdx.json lists them.

Files: *
Copyright: redlatch contributors
License: MIT or Apache-2.0
 The texts are in LICENSE-MIT and LICENSE-APACHE beside this file.
"""


def stage(root: pathlib.Path, program: Program, host_program: pathlib.Path, bill: str, completions: dict[str, str]) -> None:
    """Puts the files where a distribution has them."""
    copy_program(program.path, root / "usr/bin/redlatch")
    units = root / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    for name in UNITS:
        text = (ROOT / "packages/deploy" / name).read_text(encoding="utf-8")
        (units / name).write_text(text.replace("/usr/local/bin/", "/usr/bin/"), encoding="utf-8")
    share = root / "usr/share"
    write_pages(share / "man/man1", host_program)
    for page in sorted((share / "man/man1").iterdir()):
        (page.parent / f"{page.name}.gz").write_bytes(gzip.compress(page.read_bytes(), 9, mtime=0))
        page.unlink()
    with tempfile.TemporaryDirectory() as folder:
        written = pathlib.Path(folder) / "completions"
        places = {"bash": "bash-completion/completions/redlatch", **completions}
        write_completions(written, host_program, {shell: shell for shell in places})
        for shell, place in places.items():
            (share / place).parent.mkdir(parents=True)
            shutil.copyfile(written / shell, share / place)
    copy_licences(share / "doc/redlatch")
    shutil.copyfile(ROOT / "README.md", share / "doc/redlatch/README.md")
    (share / "doc/redlatch/sbom.cdx.json").write_text(bill, encoding="utf-8")


def set_modes(root: pathlib.Path) -> None:
    """Whatever the umask of whoever packs."""
    for path in [root, *root.rglob("*")]:
        is_program = path.is_dir() or path.name in ("redlatch", "prerm") and path.parent.name in ("bin", "DEBIAN")
        path.chmod(0o755 if is_program else 0o644)


def pack_deb(release: Release, program: Program, host_program: pathlib.Path, bill: str) -> pathlib.Path:
    """Writes the deb of a static program."""
    if shutil.which("dpkg-deb") is None:
        raise Failure("dpkg-deb is missing: apt-get install dpkg, or leave --deb out")
    file = release.out / f"redlatch_{release.version}-1_{program.target.oci}.deb"
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "root"
        stage(root, program, host_program, bill, DEBIAN_COMPLETIONS)
        (root / "usr/share/doc/redlatch/copyright").write_text(COPYRIGHT, encoding="utf-8")
        kibibytes = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
        control = [
            "Package: redlatch",
            f"Version: {release.version}-1",
            f"Architecture: {program.target.oci}",
            f"Maintainer: {MAINTAINER}",
            f"Installed-Size: {kibibytes}",
            "Section: database",
            "Priority: optional",
            f"Description: {SUMMARY[0].lower()}{SUMMARY[1:]}".replace("a lock", "lock", 1),
            *[f" {line}" for line in DESCRIPTION],
        ]
        (root / "DEBIAN").mkdir()
        (root / "DEBIAN/control").write_text("\n".join(control) + "\n", encoding="utf-8")
        (root / "DEBIAN/prerm").write_text(f'#!/bin/sh\nset -e\nif [ "$1" = remove ]; then\n    {STOP}\nfi\n', encoding="utf-8")
        set_modes(root)
        # Level 6 takes three times as long for a tenth. With several threads the bytes would be other ones.
        output("dpkg-deb", "--root-owner-group", "-Zxz", "-z3", "--threads-max=1", "--build", root, file, env=release.environment)
    return file


def spec(release: Release, root: pathlib.Path) -> str:
    """The package as rpmbuild reads it: the files as they are, without a look at the program."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    licences = [f"/usr/share/doc/redlatch/{name}" for name in LICENCES]
    names = [f"/{path.relative_to(root).as_posix()}" for path in files]
    kinds = {name: "%license " if name in licences else "%doc " if "/doc/" in name else "" for name in names}
    lines = [
        "%global __os_install_post %{nil}",
        "%global debug_package %{nil}",
        "%global _build_id_links none",
        "Name: redlatch",
        f"Version: {release.version}",
        "Release: 1",
        f"Summary: {SUMMARY}",
        "License: MIT OR Apache-2.0",
        "AutoReqProv: no",
        "%description",
        *DESCRIPTION,
        "%install",
        f'cp -a "{root}/." "%{{buildroot}}/"',
        "%preun",
        f'if [ "$1" = 0 ]; then {STOP}; fi',
        "%files",
        *[f"{kinds[name]}{name}" for name in names],
    ]
    return "\n".join(lines) + "\n"


def pack_rpm(release: Release, program: Program, host_program: pathlib.Path, bill: str) -> pathlib.Path:
    """Writes the rpm of a static program."""
    if shutil.which("rpmbuild") is None:
        raise Failure("rpmbuild is missing: apt-get install rpm, or dnf install rpm-build, or leave --rpm out")
    machine = program.target.machine
    with tempfile.TemporaryDirectory() as folder:
        top = pathlib.Path(folder)
        stage(top / "root", program, host_program, bill, RPM_COMPLETIONS)
        set_modes(top / "root")
        (top / "redlatch.spec").write_text(spec(release, top / "root"), encoding="utf-8")
        macros = {
            "_topdir": str(top),
            "_buildhost": "localhost",
            "use_source_date_epoch_as_buildtime": "1",
            "clamp_mtime_to_source_date_epoch": "1",
            "_binary_payload": "w6.gzdio",
            "__brp_mangle_shebangs": "%{nil}",
        }
        words = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
        command = ["rpmbuild", "-bb", "--quiet", "--target", f"{machine}-linux", *words, top / "redlatch.spec"]
        done = subprocess.run(command, env=release.environment, capture_output=True, encoding="utf-8", errors="replace")
        if done.returncode != 0:
            raise Failure(f"rpmbuild exits with {done.returncode}: {done.stderr.strip()}")
        (built,) = (top / "RPMS").rglob("*.rpm")
        return pathlib.Path(shutil.copyfile(built, release.out / built.name))
