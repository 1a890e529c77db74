#!/usr/bin/env python3
"""Makes a release: for each platform the program with its documents, man pages and completions, and an SBOM; packages; checksums.

    packages/release.py [--target TRIPLE ...] [--npm] [--wheel] [--deb] ... [--out DIRECTORY]
    packages/release.py --binary target/release/redlatch --features default
    packages/release.py --all --url https://example.com/v0.1.0 --target x86_64-unknown-linux-musl --target ...

By default the program is built for musl, with all features: one static file that runs on any Linux of its architecture. That takes
the target (`rustup target add x86_64-unknown-linux-musl`) and a C compiler for it (`apt-get install musl-tools`; for Windows
`gcc-mingw-w64-x86-64`; for other targets `pip install cargo-zigbuild ziglang`). With --binary programs are packed that are built
already, each for the platform that its head names; --features then says with which features.

--npm      the package for Node, and one for each platform. That around a static program is the one for musl.
--wheel    the wheel of each platform. Its program is built by the profile `wheel`, with Lua and TLS, unless --binary has it.
--jar      the extension for JUnit, for Maven, and the jar with the program of each platform. That for Linux has the static program.
--deb, --rpm, --image
           of static programs: packages with the units for systemd; the image as an OCI layout, for all processors in one file.
--sdist, --chart, --clients [LANGUAGE ...]
           of the sources alone, the last one the lock clients: a wheel, a package for npm, a zip with all modules for Go, jars for Maven.
           Without --target and --binary no program is built for them.
--homebrew, --scoop
           name archives in the folder by checksum and by URL, below --url.
--all      whatever fits the platforms.
--publishable
           makes nothing without a place of the project: names the fields of Cargo.toml that are empty. The last part of --url
           is the tag of the version, and a program for glibc runs with 2.17.

The same sources, programs and date give the same files: the date is SOURCE_DATE_EPOCH, or that of the last commit. Nothing is sent
anywhere.
"""

import argparse
import concurrent.futures
import itertools
import pathlib
import sys
import tempfile
from collections.abc import Callable

from release import archive, build, downloads, golang, home, image, linux, maven, npm, program, sbom, wheel
from release.common import ROOT, Failure, Release, begin, output
from release.program import Program
from release.targets import machine_here, target_of

OF_A_PROGRAM = ["npm", "wheel", "jar"]
OF_A_STATIC_PROGRAM = ["deb", "rpm", "image"]
OF_THE_SOURCES = ["sdist", "chart", "clients"]
OF_ARCHIVES = ["homebrew", "scoop"]
CLIENTS = {"python": wheel.pack_client, "node": npm.pack_client, "go": golang.pack_client, "java": maven.pack_client}
KINDS = [*OF_A_PROGRAM, *OF_A_STATIC_PROGRAM, *OF_THE_SOURCES, *OF_ARCHIVES]


def programs_of(options: argparse.Namespace, triples: list[str], profile: str, features: str) -> list[Program]:
    """The programs to pack: those that are given, or those that cargo builds."""
    targets = [target_of(triple) for triple in triples]
    if options.binary and targets and len(targets) != len(options.binary):
        raise Failure(f"{len(targets)} targets for {len(options.binary)} programs: name one for each, or none")
    given = [path.absolute() for path in options.binary or []]
    paths = given or [build.build(target, features, profile) for target in targets]
    made = [program.check(path, target) for path, target in zip(paths, targets or [None] * len(paths))]
    # One that is given may be for this machine alone, unless it is to be published.
    if options.publishable or not given:
        for each in made:
            program.check_glibc(each)
    return made


def check_version(made: Program, release: Release) -> None:
    """The program is of this version. One that does not run here must at least have the number in it."""
    if not made.target.runs_here:
        if release.version.encode() not in made.path.read_bytes():
            raise Failure(f"{made.path} is not version {release.version}: build it from these sources")
        return
    said = output(made.path, "--version")
    if f"redlatch={release.version}\n" not in said:
        raise Failure(f"{made.path} is not version {release.version}: it says {said.strip()}")


def host_program(options: argparse.Namespace, programs: list[Program]) -> pathlib.Path:
    """What writes man pages and completions: it has the features of the others, and runs here."""
    if options.host_binary:
        return options.host_binary.absolute()
    here = next((each.path for each in programs if each.target.runs_here), None)
    return here or build.build_here(options.features)


def chosen(options: argparse.Namespace) -> list[str]:
    """The kinds to make. Those that need an address are part of --all if there is one, and of what is published."""
    if options.all and options.publishable:
        downloads.check_url(options.url or "")
    if options.all:
        return [kind for kind in KINDS if options.url or kind not in OF_ARCHIVES]
    # --clients alone has an empty list.
    kinds = [kind for kind in KINDS if getattr(options, kind) not in (None, False)]
    if set(kinds) & set(OF_ARCHIVES):
        downloads.check_url(options.url or "")
    return kinds


def check_kinds(kinds: list[str], programs: list[Program]) -> None:
    """Each kind that is asked for has a program that it is made around."""
    if set(kinds) & set(OF_A_STATIC_PROGRAM) and not any(each.target.is_static for each in programs):
        raise Failure("--deb, --rpm and --image take a static program: --target x86_64-unknown-linux-musl")
    if "jar" in kinds and all(each.target.libc == "glibc" for each in programs):
        raise Failure("--jar takes, for Linux, a static program: --target x86_64-unknown-linux-musl")


def pack_program(release: Release, made: Program, host: pathlib.Path, features: str, kinds: list[str]) -> list[pathlib.Path]:
    """The files of one platform, but the wheel."""
    papers = sbom.papers(made.target, features, release.date)
    bill_file = release.out / f"redlatch-{release.version}-{made.target.triple}.cdx.json"
    bill_file.write_text(papers.bill, encoding="utf-8")
    jobs: list[Callable[[], list[pathlib.Path]]] = [lambda: [archive.pack(release, made.path, made.target, host, papers)]]
    if "npm" in kinds:
        jobs.append(lambda: npm.pack(release, made, papers))
    # A jar for Linux with the static program does for glibc, too.
    if "jar" in kinds and made.target.libc != "glibc":
        jobs.append(lambda: [maven.pack(release, made, papers)])
    if "deb" in kinds and made.target.is_static:
        jobs.append(lambda: [linux.pack_deb(release, made, host, papers)])
    if "rpm" in kinds and made.target.is_static:
        jobs.append(lambda: [linux.pack_rpm(release, made, host, papers)])
    # Nearly all of the time is compression, which leaves the interpreter free.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return [bill_file, *itertools.chain.from_iterable(pool.map(lambda job: job(), jobs))]


def pack_wheels(release: Release, options: argparse.Namespace, triples: list[str], programs: list[Program]) -> list[pathlib.Path]:
    """The wheels: around smaller programs if they are built here."""
    features = options.features if options.binary else build.wheel_features()
    small = programs if options.binary else programs_of(options, triples, build.WHEEL, features)
    return [wheel.pack(release, each, sbom.papers(each.target, features, release.date)) for each in small]


def pack_others(release: Release, options: argparse.Namespace, kinds: list[str], programs: list[Program]) -> list[pathlib.Path]:
    """What there is once."""
    features = options.features
    static = [each for each in programs if each.target.is_static]
    files = []
    if "image" in kinds and static:
        files.append(image.pack(release, [(each, sbom.papers(each.target, features, release.date)) for each in static]))
    if "jar" in kinds:
        files += maven.pack_extension(release)
    if "sdist" in kinds:
        files.append(wheel.pack_sdist(release))
    if "clients" in kinds:
        for language in options.clients or CLIENTS:
            files += CLIENTS[language](release)
    if "chart" in kinds:
        files.append(downloads.pack_chart(release))
    for kind, write in {"homebrew": downloads.pack_formula, "scoop": downloads.pack_scoop}.items():
        if kind in kinds and (not options.all or has_archive(kind, programs)):
            files.append(write(release, downloads.check_url(options.url or "")))
    return files


def has_archive(kind: str, programs: list[Program]) -> bool:
    is_windows = {each.target.system == "windows" for each in programs}
    return (kind == "scoop") in is_windows


def write_sums(release: Release, files: list[pathlib.Path]) -> pathlib.Path:
    """SHA256SUMS, with the lines of earlier runs whose files are still there."""
    file = release.out / "SHA256SUMS"
    lines = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        digest, name = line.split("  ", 1)
        lines[name] = digest
    lines |= {file.name: downloads.sha256(file) for file in files}
    there = {name: digest for name, digest in lines.items() if (release.out / name).exists()}
    file.write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(there.items())), encoding="utf-8")
    return file


def release_all(options: argparse.Namespace) -> list[pathlib.Path]:
    """Makes the files of a release, and returns them."""
    release = begin(options.out.absolute())
    kinds = chosen(options)
    if options.publishable:
        downloads.check_tag(release, options.url or "")
        home.check_publishable()
    needs_no_program = kinds and set(kinds) <= set(OF_THE_SOURCES)
    triples = options.target or []
    if not (triples or options.binary or needs_no_program):
        triples = [f"{machine_here()}-unknown-linux-musl"]
    programs = programs_of(options, triples, build.RELEASE, options.features)
    if not options.all:
        check_kinds(kinds, programs)
    for each in programs:
        check_version(each, release)
    release.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=release.out):
        pass  # The folder can be written: known before anything is packed.
    files: list[pathlib.Path] = []
    host = host_program(options, programs) if programs else None
    for each in programs:
        files += pack_program(release, each, host, options.features, kinds)
    if "wheel" in kinds:
        files += pack_wheels(release, options, triples, programs)
    files += pack_others(release, options, kinds, programs)
    files = list(dict.fromkeys(files))
    return [*files, write_sums(release, files)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", help="triple of a program [default: this machine's, with musl]")
    parser.add_argument("--binary", action="append", type=pathlib.Path, help="a program that is built already")
    parser.add_argument("--host-binary", type=pathlib.Path, help="a program of this machine that writes the man pages")
    parser.add_argument("--features", default="all", help="all, default, or a list with commas [default: all]")
    parser.add_argument("--url", help="https address of the folder that the archives will be in")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target/releases", help="where the files go")
    parser.add_argument("--publishable", action="store_true", help="refuse to make what tells of no place of the project")
    for kind in ["all", *KINDS]:
        several = {"nargs": "*", "choices": CLIENTS, "metavar": "LANGUAGE"}
        parser.add_argument(f"--{kind}", **(several if kind == "clients" else {"action": "store_true"}))
    options = parser.parse_args()
    try:
        for file in release_all(options):
            print(file)
    except Failure as failure:
        print(f"release: {failure}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"release: {error.filename}: {error.strerror}: it must be there, and --out a folder to write to", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
