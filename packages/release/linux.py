"""Packages of Linux distributions around a static program: deb by dpkg-deb, rpm by rpmbuild.

Both are the programs that define these forms, Debian has both (`apt-get install rpm`), and they pack for any processor. cargo-deb and
cargo-generate-rpm would first be built for minutes. An installation does not start the service, an upgrade starts it
again if it runs, and a removal stops it.
"""

import gzip
import pathlib
import shutil
import subprocess
import tempfile

from . import licences
from .archive import copy_licences, copy_program, set_modes, write_completions, write_pages
from .common import LICENCES, ROOT, SUMMARY, Failure, Release, output
from .home import home
from .program import Program
from .sbom import Papers

# While the project has no place.
NOBODY = "redlatch contributors <redlatch@localhost>"
DESCRIPTION = [
    "Lock clients of Redis use it unchanged, and it tells who holds a lock, for how",
    "long, and with which fencing token. Locks outlive a kill and a restart.",
]
UNITS = ["redlatch.service", "redlatch.socket"]
DEFAULTS = "etc/default/redlatch"
DEFAULTS_TEXT = """# Settings of the service, as the unit redlatch.service reads them. `redlatch --help` lists all of them.
#REDLATCH_BIND=10.0.0.5
"""
STOP = "systemctl disable --now redlatch.socket redlatch.service || true"
RELOAD = "systemctl daemon-reload || true"
RESTART = "systemctl try-restart redlatch.service || true"
# What dpkg runs, with the word or the older version that it gives; not for a tree that is another system's.
DEBIAN_SCRIPTS = {
    "postinst": f'{RELOAD}\n    if [ -n "$2" ]; then {RESTART}; fi',
    "prerm": f'if [ "$1" = remove ]; then {STOP}; fi',
    "postrm": RELOAD,
}
DEBIAN_SCRIPT = """#!/bin/sh
set -e
if [ -z "${{DPKG_ROOT:-}}" ] && [ -d /run/systemd/system ]; then
    {}
fi
"""
CHANGES = """redlatch ({version}-1) unstable; urgency=medium

  * Version {version} of the program.

 -- {maintainer}  {date}
"""
# One static file is what the package is for, and the settings may have a password.
OVERRIDES = """redlatch: statically-linked-binary [usr/bin/redlatch]
redlatch: non-standard-file-perm 0640 != 0644 [etc/default/redlatch]
"""
# What rpm runs, with the number of versions that are left.
RPM_SCRIPTS = {
    "%post": RELOAD,
    "%preun": f'if [ "$1" = 0 ]; then {STOP}; fi',
    "%postun": f'{RELOAD}; if [ "$1" -ge 1 ]; then {RESTART}; fi',
}
RPM_SCRIPT = "if [ -d /run/systemd/system ]; then {}; fi"
# Where zsh and fish look: not the same in all distributions.
DEBIAN_COMPLETIONS = {"fish": "fish/vendor_completions.d/redlatch.fish", "zsh": "zsh/vendor-completions/_redlatch"}
RPM_COMPLETIONS = {"fish": "fish/vendor_completions.d/redlatch.fish", "zsh": "zsh/site-functions/_redlatch"}
Completions = dict[str, str]
COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: redlatch
Comment: The program contains crates with licences of their own: LICENSE-THIRD-PARTY beside this file has their texts.

Files: *
Copyright: 2026 The redlatch developers
License: MIT or Apache-2.0
 The texts are in LICENSE-MIT and LICENSE-APACHE beside this file.
"""


def stage(root: pathlib.Path, release: Release, program: Program, host: pathlib.Path, papers: Papers, completions: Completions) -> None:
    """Puts the files where a distribution has them."""
    copy_program(program.path, root / "usr/bin/redlatch")
    units = root / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    for name in UNITS:
        text = (ROOT / "packages/deploy" / name).read_text(encoding="utf-8")
        (units / name).write_text(text.replace("/usr/local/bin/", "/usr/bin/"), encoding="utf-8")
    share = root / "usr/share"
    write_pages(share / "man/man1", host)
    for page in sorted((share / "man/man1").iterdir()):
        (page.parent / f"{page.name}.gz").write_bytes(gzip.compress(page.read_bytes(), 9, mtime=0))
        page.unlink()
    with tempfile.TemporaryDirectory() as folder:
        written = pathlib.Path(folder) / "completions"
        places = {"bash": "bash-completion/completions/redlatch", **completions}
        write_completions(written, host, {shell: shell for shell in places})
        for shell, place in places.items():
            (share / place).parent.mkdir(parents=True)
            shutil.copyfile(written / shell, share / place)
    write(root / DEFAULTS, DEFAULTS_TEXT)
    documents = share / "doc/redlatch"
    copy_licences(documents, papers)
    write(documents / "README.md", home().readme(ROOT, release.version))
    write(documents / "sbom.cdx.json", papers.bill)


def settle(root: pathlib.Path, release: Release) -> None:
    """Modes and times. The settings may have a password."""
    set_modes(root, release.seconds)
    (root / DEFAULTS).chmod(0o640)


def write(file: pathlib.Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def control(release: Release, program: Program, root: pathlib.Path) -> list[str]:
    kibibytes = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
    return [
        "Package: redlatch",
        f"Version: {release.version}-1",
        f"Architecture: {program.target.oci}",
        f"Maintainer: {home().maintainer or NOBODY}",
        *([f"Homepage: {home().homepage}"] if home().homepage else []),
        f"Installed-Size: {kibibytes}",
        "Section: database",
        "Priority: optional",
        f"Description: {SUMMARY[0].lower()}{SUMMARY[1:]}".replace("a lock", "lock", 1),
        *[f" {line}" for line in DESCRIPTION],
    ]


def pack_deb(release: Release, program: Program, host_program: pathlib.Path, papers: Papers) -> pathlib.Path:
    """Writes the deb of a static program."""
    if shutil.which("dpkg-deb") is None:
        raise Failure("dpkg-deb is missing: apt-get install dpkg, or leave --deb out")
    file = release.out / f"redlatch_{release.version}-1_{program.target.oci}.deb"
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "root"
        stage(root, release, program, host_program, papers, DEBIAN_COMPLETIONS)
        write(root / "usr/share/doc/redlatch/copyright", COPYRIGHT)
        words = {"maintainer": home().maintainer or NOBODY, "date": release.moment.strftime("%a, %d %b %Y %H:%M:%S +0000")}
        changes = CHANGES.format(version=release.version, **words).encode()
        (root / "usr/share/doc/redlatch/changelog.Debian.gz").write_bytes(gzip.compress(changes, 9, mtime=0))
        write(root / "usr/share/lintian/overrides/redlatch", OVERRIDES)
        write(root / "DEBIAN/control", "\n".join(control(release, program, root)) + "\n")
        write(root / "DEBIAN/conffiles", f"/{DEFAULTS}\n")
        for name, commands in DEBIAN_SCRIPTS.items():
            write(root / "DEBIAN" / name, DEBIAN_SCRIPT.format(commands))
        settle(root, release)
        # Level 6 takes three times as long for a tenth. With several threads the bytes would be other ones.
        output("dpkg-deb", "--root-owner-group", "-Zxz", "-z3", "--threads-max=1", "--build", root, file, env=release.environment)
    return file


def spec(release: Release, root: pathlib.Path) -> str:
    """The package as rpmbuild reads it: the files as they are, without a look at the program."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    texts = [f"/usr/share/doc/redlatch/{name}" for name in [*LICENCES, licences.FILE]]
    names = [f"/{path.relative_to(root).as_posix()}" for path in files]
    kinds = {name: "%license " if name in texts else "%doc " if "/doc/" in name else "" for name in names}
    kinds[f"/{DEFAULTS}"] = "%attr(0640,root,root) %config(noreplace) "
    url = [f"URL: {home().homepage}"] if home().homepage else []
    lines = [
        "%global __os_install_post %{nil}",
        "%global debug_package %{nil}",
        "%global _build_id_links none",
        "Name: redlatch",
        f"Version: {release.version}",
        "Release: 1",
        f"Summary: {SUMMARY}",
        "License: MIT OR Apache-2.0",
        "Group: Applications/Databases",
        *url,
        f"Packager: {home().maintainer or NOBODY}",
        "AutoReqProv: no",
        "%description",
        *DESCRIPTION,
        "%install",
        f'cp -a "{root}/." "%{{buildroot}}/"',
        *[line for name, commands in RPM_SCRIPTS.items() for line in [name, RPM_SCRIPT.format(commands)]],
        "%files",
        "%dir /usr/share/doc/redlatch",
        *[f"{kinds[name]}{name}" for name in names],
        "%changelog",
        f"* {release.moment.strftime('%a %b %d %Y')} {home().maintainer or NOBODY} - {release.version}-1",
        f"- Version {release.version} of the program.",
    ]
    return "\n".join(lines) + "\n"


def pack_rpm(release: Release, program: Program, host_program: pathlib.Path, papers: Papers) -> pathlib.Path:
    """Writes the rpm of a static program."""
    if shutil.which("rpmbuild") is None:
        raise Failure("rpmbuild is missing: apt-get install rpm, or dnf install rpm-build, or leave --rpm out")
    machine = program.target.machine
    with tempfile.TemporaryDirectory() as folder:
        top = pathlib.Path(folder)
        stage(top / "root", release, program, host_program, papers, RPM_COMPLETIONS)
        settle(top / "root", release)
        (top / "redlatch.spec").write_text(spec(release, top / "root"), encoding="utf-8")
        macros = {
            "_topdir": str(top),
            "_buildhost": "localhost",
            "use_source_date_epoch_as_buildtime": "1",
            "clamp_mtime_to_source_date_epoch": "1",
            "source_date_epoch_from_changelog": "0",
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
