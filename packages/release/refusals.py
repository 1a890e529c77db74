#!/usr/bin/env python3
"""What packages/release.py refuses, and that it says what to do; and that the same files come out of it each time.

    packages/release/refusals.py PROGRAM

PROGRAM is a static one of this machine. Programs of other kinds are heads without bodies, made here.
"""

import io
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import unittest
import unittest.mock
import zipfile

PACKAGES = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PACKAGES))

from release import archive, build, common, downloads, golang, home, licences, linux, maven, npm, program, wheel  # noqa: E402
from release.common import Failure, Release  # noqa: E402
from release.targets import machine_here, target_of  # noqa: E402

PROGRAM = pathlib.Path()
X86, ARM = 62, 183
# Whether Maven Central takes a POM. Newer ones want a Maven that Debian does not have yet.
CENTRAL = "org.kordamp.maven:pomchecker-maven-plugin:1.4.0:check-maven-central"


WEB = "https://example.com/redlatch"
PLACE = dict.fromkeys(home.FORMS, WEB) | {"maintainer": "Some One <some@example.com>"}


def have(test: unittest.TestCase, place: dict[str, str]) -> None:
    """Gives the project this place until the end of the test, whatever Cargo.toml has."""
    test.enterContext(unittest.mock.patch.object(home, "fields", lambda: place))
    home.home.cache_clear()
    test.addCleanup(home.home.cache_clear)


def elf(machine: int, loader: bytes = b"", section: int = 0, more: bytes = b"") -> bytes:
    """An ELF file with one program header, the loader's name, and one section of this type."""
    head = b"\x7fELF\x02\x01" + bytes(10) + struct.pack("<HHI", 2, machine, 1)
    head += struct.pack("<QQQ", 0, 64, 120) + struct.pack("<IHHHHHH", 0, 64, 56, 1, 64, 1, 0)
    segment = struct.pack("<IIQQQQ", 3 if loader else 1, 0, 184, 0, 0, len(loader)) + bytes(16)
    return head + segment + struct.pack("<II", 0, section) + bytes(56) + loader + more


def pe(machine: int, symbols: int = 0) -> bytes:
    return b"MZ" + bytes(58) + struct.pack("<I", 64) + b"PE\0\0" + struct.pack("<HHIII", machine, 1, 0, 0, symbols)


def mach(machine: int, oldest: tuple[int, int] = (11, 0)) -> bytes:
    head = b"\xcf\xfa\xed\xfe" + struct.pack("<IIIII", machine, 0, 2, 2, 40) + bytes(8)
    return head + struct.pack("<IIQ", 0x1B, 16, 0) + struct.pack("<IIII", 0x32, 24, 1, oldest[0] << 16 | oldest[1] << 8) + bytes(8)


class Heads(unittest.TestCase):
    """What the head of a program tells."""

    def setUp(self) -> None:
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="größer als ")))

    def read(self, data: bytes) -> program.Program:
        file = self.folder / "redlatch"
        file.write_bytes(data)
        return program.read(file)

    def test_each_platform_is_told_from_the_others(self) -> None:
        heads = {
            "x86_64-unknown-linux-musl": elf(X86),
            "aarch64-unknown-linux-musl": elf(ARM),
            "x86_64-unknown-linux-gnu": elf(X86, b"/lib64/ld-linux-x86-64.so.2\0"),
            "aarch64-unknown-linux-gnu": elf(ARM, b"/lib/ld-linux-aarch64.so.1\0"),
            "x86_64-pc-windows-gnu": pe(0x8664),
            "x86_64-apple-darwin": mach(0x01000007),
            "aarch64-apple-darwin": mach(0x0100000C),
        }
        for triple, data in heads.items():
            self.assertEqual(self.read(data).target.triple, triple)

    def test_the_wheel_asks_for_the_newest_glibc_that_the_program_does(self) -> None:
        versions = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.17\0GLIBC_PRIVATE\0"
        made = self.read(elf(X86, b"/lib64/ld-linux-x86-64.so.2\0", more=versions))
        self.assertEqual(made.needs, (2, 34))
        self.assertEqual(wheel.tags(made), ["manylinux_2_34_x86_64"])
        with self.assertRaisesRegex(Failure, "needs glibc 2.34, not 2.17"):
            program.check_glibc(made)
        program.check_glibc(self.read(elf(X86, b"/lib64/ld-linux-x86-64.so.2\0", more=b"\0GLIBC_2.17\0")))
        self.assertEqual(wheel.tags(self.read(elf(ARM)))[-1], "musllinux_1_1_aarch64")
        self.assertEqual(wheel.tags(self.read(pe(0x8664))), ["win_amd64"])

    def test_the_wheel_asks_for_the_macos_that_the_program_does(self) -> None:
        for oldest, tag in {(10, 12): "macosx_11_0_arm64", (11, 0): "macosx_11_0_arm64", (15, 2): "macosx_15_0_arm64"}.items():
            self.assertEqual(wheel.tags(self.read(mach(0x0100000C, oldest))), [tag])
        self.assertEqual(wheel.tags(self.read(mach(0x01000007, (10, 12)))), ["macosx_10_12_x86_64"])

    def test_symbols_are_found(self) -> None:
        self.assertTrue(self.read(elf(X86, section=2)).has_symbols)
        self.assertTrue(self.read(pe(0x8664, symbols=9)).has_symbols)
        self.assertFalse(self.read(pe(0x8664)).has_symbols)

    def test_other_files_are_refused(self) -> None:
        wrong = {
            b"#!/bin/sh\n": "is not a 64-bit program",
            b"": "is not a 64-bit program",
            elf(X86)[:70]: "is damaged",
            b"\x7fELF\x01\x01" + bytes(60): "is not a 64-bit program of Linux",
            elf(40): "a processor that no release has",
            elf(X86, b"/lib/ld-musl-x86_64.so.1\0"): "is not static",
            pe(0x14C): "a processor that no release has",
            b"MZ" + bytes(70): "it has no PE header",
            b"MZ": "is damaged",
            mach(0x0100000C)[:50]: "is damaged",
        }
        for data, words in wrong.items():
            with self.assertRaisesRegex(Failure, words):
                self.read(data)


class Builds(unittest.TestCase):
    """How cargo is called."""

    def setUp(self) -> None:
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="größer als ")))
        self.target = target_of(f"{machine_here()}-unknown-linux-gnu")
        self.output = self.enterContext(unittest.mock.patch.object(build, "output", return_value=str(self.folder)))

    def test_a_program_of_this_machine_is_built_for_an_old_glibc(self) -> None:
        (self.folder / "lib/rustlib" / self.target.triple).mkdir(parents=True)
        self.enterContext(unittest.mock.patch.object(build.shutil, "which", return_value="found"))
        run = self.enterContext(unittest.mock.patch.object(build.subprocess, "run"))
        run.return_value.returncode = 0
        with unittest.mock.patch.object(build, "same_anywhere", return_value={}):
            build.build(self.target, "all", build.RELEASE)
        (command,) = run.call_args.args
        self.assertEqual((command[0], command[-2]), ("cargo-zigbuild", f"{self.target.triple}.2.17"))

    def test_packages_that_are_not_unpacked_yet_have_no_path_of_this_machine(self) -> None:
        unpacked = self.folder / "registry/src/index-1"
        self.output.side_effect = lambda *_command: unpacked.mkdir(parents=True)
        given = {"CARGO_HOME": str(self.folder), "CARGO_ENCODED_RUSTFLAGS": "--cfg\x1fgiven"}
        with unittest.mock.patch.dict(os.environ, given):
            flags = build.same_anywhere(self.target)["CARGO_ENCODED_RUSTFLAGS"].split("\x1f")
        self.assertEqual(flags[:3], ["--cfg", "given", f"--remap-path-prefix={unpacked}=/crates"])

    def test_the_program_of_a_wheel_has_the_test_backend(self) -> None:
        self.assertIn("testing", build.wheel_features().split(","))
        self.assertIn(f" {build.wheel_features()} ", (common.ROOT / ".ci/steps/lint").read_text())


class Contents(unittest.TestCase):
    """What is in the files of a release."""

    def setUp(self) -> None:
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="größer als ")))

    def test_licences_of_what_is_no_crate(self) -> None:
        rust, musl, mingw = "The Rust Project Developers", "Rich Felker, et al.", "mingw-w64 project"
        linked = {"x86_64-unknown-linux-musl": [rust, musl], "x86_64-pc-windows-gnu": [rust, mingw], "aarch64-apple-darwin": [rust]}
        for triple, owners in linked.items():
            text = licences.collected([], target_of(triple))
            self.assertEqual([owner for owner in [rust, musl, mingw] if owner in text], owners)
            self.assertNotIn("</p>", text)

    def test_licences_of_a_crate_without_a_text(self) -> None:
        crate = {"name": "some", "version": "1.0.0", "authors": ["Some One"], "manifest_path": self.folder / "Cargo.toml"}
        for licence, wanted in {"Apache-2.0 OR MIT": "(c) Some One", "Apache-2.0": "Apache License", "MIT/Zlib": "(c) Some One"}.items():
            self.assertIn(wanted, licences.texts(crate | {"license": licence})[0])
        (self.folder / "LICENSES").mkdir()
        (self.folder / "LICENSES/MIT.txt").write_text("its own")
        self.assertEqual(licences.texts(crate | {"license": "MIT"}), ["its own"])

    def test_settings_with_a_password_are_for_root_alone_and_times_are_those_of_the_release(self) -> None:
        linux.write(self.folder / linux.DEFAULTS, linux.DEFAULTS_TEXT)
        linux.settle(self.folder, Release("1.2.3", 4_000_000_000, self.folder))
        about = (self.folder / linux.DEFAULTS).stat()
        self.assertEqual((about.st_mode & 0o777, about.st_mtime), (0o640, 4_000_000_000))
        spec = linux.spec(Release("1.2.3", 0, self.folder), self.folder)
        self.assertIn("%attr(0640,root,root) %config(noreplace) /etc/default/redlatch\n", spec)

    def test_the_pages_of_an_archive_lead_to_the_repository_where_the_archive_has_no_file(self) -> None:
        have(self, PLACE)
        archive.copy_documents(self.folder, "1.2.3")
        page = (self.folder / "docs/deploy.md").read_text()
        self.assertIn(f"]({WEB}/blob/v1.2.3/src/security.md#", page)
        self.assertIn("](operations.md#", page)

    def test_an_archive_has_no_other_files_than_the_repository(self) -> None:
        with tempfile.NamedTemporaryFile(dir=common.ROOT / "docs", suffix=".md"):
            archive.copy_documents(self.folder, "1.2.3")
        made = {file.relative_to(self.folder / "docs").as_posix() for file in (self.folder / "docs").rglob("*") if file.is_file()}
        self.assertEqual({f"docs/{name}" for name in made}, set(common.tracked("docs")))

    def test_packages_of_sources_have_no_other_files_than_the_repository(self) -> None:
        others = {wheel.CLIENT / "redlatch_client": ".py", golang.CLIENT: ".go", maven.CLIENT / "src/main/java": ".java"}
        for folder, suffix in others.items():
            file = self.enterContext(tempfile.NamedTemporaryFile(dir=folder, suffix=suffix))
            others[folder] = pathlib.Path(file.name).name
        python, go, java = others.values()
        self.assertNotIn(python, [file.name for file in wheel.module_files(wheel.CLIENT / "redlatch_client")])
        with zipfile.ZipFile(io.BytesIO(golang.module_zip(golang.CLIENT, "m@v1/", "module m\n", 0, "v1"))) as module:
            names = module.namelist()
        self.assertTrue({"m@v1/locks.go", "m@v1/LICENSE-MIT", "m@v1/examples/deploy.go"} <= set(names), names)
        self.assertNotIn(f"m@v1/{go}", names)
        self.assertFalse([name for name in names if name.startswith(("m@v1/tests/", "m@v1/gocronlocks/"))])
        with zipfile.ZipFile(io.BytesIO(maven.sources_of(maven.CLIENT, 0))) as sources:
            self.assertIn("META-INF/LICENSE-MIT", sources.namelist())
            self.assertNotIn(java, sources.namelist())


class Refusals(unittest.TestCase):
    """What the command says."""

    def setUp(self) -> None:
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="größer als ")))
        self.out = self.folder / "out"

    def release(self, *words: str | pathlib.Path, umask: int = -1, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, PACKAGES / "release.py", "--out", self.out, *words]
        return subprocess.run(command, env={**os.environ, **variables}, umask=umask, capture_output=True, encoding="utf-8")

    def refuses(self, words: str, *arguments: str | pathlib.Path, **variables: str) -> None:
        done = self.release(*arguments, **variables)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn(words, done.stderr)
        self.assertTrue(done.stderr.startswith("release: ") and "Traceback" not in done.stderr, done.stderr)

    def test_a_program_that_is_not_there(self) -> None:
        self.refuses("build it with 'cargo build --release'", "--binary", self.folder / "missing")
        self.refuses("cannot be read", "--binary", self.folder)

    def test_a_program_for_another_platform(self) -> None:
        self.refuses("or build the other one", "--binary", PROGRAM, "--target", "x86_64-pc-windows-gnu")
        self.refuses("there is no target riscv64", "--target", "riscv64gc-unknown-linux-gnu")

    def test_more_targets_than_programs(self) -> None:
        targets = ["--target", "x86_64-pc-windows-gnu", "--target", "aarch64-apple-darwin"]
        self.refuses("2 targets for 1 programs", "--binary", PROGRAM, *targets)

    def test_a_program_that_is_not_stripped(self) -> None:
        file = self.folder / "redlatch"
        file.write_bytes(elf(X86, section=2))
        self.refuses("build it with --release", "--binary", file)

    def test_a_program_of_another_version(self) -> None:
        file = self.folder / "redlatch.exe"
        file.write_bytes(pe(0x8664))
        self.refuses("is not version", "--binary", file)

    def test_a_program_that_cannot_run_here_although_it_should(self) -> None:
        file = self.folder / "redlatch"
        file.write_bytes(PROGRAM.read_bytes()[:4096])
        self.refuses("is damaged", "--binary", file)
        shutil.copyfile(PROGRAM, file)
        file.chmod(0o644)
        self.refuses("cannot be run on this machine: Permission denied", "--binary", file)

    def test_packages_of_linux_around_a_program_that_is_not_static(self) -> None:
        file = self.folder / "redlatch"
        file.write_bytes(elf(X86, b"/lib64/ld-linux-x86-64.so.2\0"))
        for kind in ["--deb", "--rpm", "--image", "--jar"]:
            self.refuses("a static program: --target x86_64-unknown-linux-musl", "--binary", file, kind)

    def test_addresses(self) -> None:
        for url in ["", "http://example.com", 'https://example.com/"', "https://"]:
            self.refuses("it must be the https address", "--binary", PROGRAM, "--homebrew", "--url", url)
        self.refuses("it must be the https address", "--binary", PROGRAM, "--all", "--publishable")
        self.refuses("takes the archive for Windows", "--binary", PROGRAM, "--scoop", "--url", "https://example.com")

    def test_a_date_that_is_none(self) -> None:
        self.refuses("it must be a number of seconds", "--chart", SOURCE_DATE_EPOCH="today")

    def test_a_folder_that_cannot_be_written(self) -> None:
        self.out.write_text("a file")
        self.refuses("a folder to write to", "--chart")
        self.out = self.out / "below"
        self.refuses("a folder to write to", "--binary", PROGRAM)

    def test_the_same_files_each_time(self) -> None:
        """Also for sums of an earlier run: they are kept while their files are there."""
        first = self.release("--chart", "--sdist")
        self.assertEqual(first.returncode, 0, first.stderr)
        made = {file.name: file.read_bytes() for file in self.out.iterdir()}
        self.assertEqual(len(made), 3, list(made))
        for file in made:
            (self.out / file).unlink() if file != "SHA256SUMS" else None
        self.assertEqual(self.release("--sdist").returncode, 0)
        self.assertNotIn("chart", (self.out / "SHA256SUMS").read_text())
        self.assertEqual(self.release("--chart").returncode, 0)
        self.assertEqual({file.name: file.read_bytes() for file in self.out.iterdir()}, made)

    def test_a_tag_of_another_version(self) -> None:
        self.refuses("it must end in v", "--publishable", "--chart", "--url", "https://example.com/v9.9.9")

    def test_a_project_without_a_place(self) -> None:
        for empty in [list(home.FORMS), ["security"]]:
            have(self, PLACE | dict.fromkeys(empty, ""))
            with self.assertRaisesRegex(Failure, f"published: {', '.join(empty)} in Cargo.toml must be set"):
                home.check_publishable()

    def test_the_same_lock_clients_each_time(self) -> None:
        made = []
        for umask in [0o022, 0o077]:
            self.assertEqual(self.release("--clients", umask=umask).returncode, 0)
            made.append({file.name: file.read_bytes() for file in self.out.iterdir()})
            shutil.rmtree(self.out)
        # A wheel, a package, modules, three jars and their POM; the checksums.
        self.assertEqual(len(made[0]), 8, list(made[0]))
        self.assertEqual(*made)

    def test_a_project_with_a_place(self) -> None:
        """All that is made of the sources tells of it, and its pages link to it."""
        have(self, PLACE)
        with unittest.mock.patch.dict(home.WRITTEN, clear=True), unittest.mock.patch.object(home, "PAGES", ["SECURITY.md"]):
            home.check_publishable()
        self.out.mkdir()
        release = common.begin(self.out)
        (client,) = wheel.pack_client(release)
        (package,), (modules,) = npm.pack_client(release), golang.pack_client(release)
        with zipfile.ZipFile(client) as archive:
            about = archive.read(f"redlatch_client-{release.version}.dist-info/METADATA").decode()
        self.assertIn(f"\nProject-URL: Repository, {WEB}\n", about)
        self.assertIn(f"]({WEB}/blob/v{release.version}/docs/using-locks.md)", about)
        self.assertNotIn("](..", about)
        with tarfile.open(package) as archive:
            about = json.load(archive.extractfile("package/package.json"))
        self.assertEqual((about["homepage"], about["repository"]["url"]), (WEB, f"git+{WEB}.git"))
        with zipfile.ZipFile(modules) as archive:
            names = [name for name in archive.namelist() if name.endswith(".zip")]
            self.assertEqual(len(names), 3, names)
        with tarfile.open(downloads.pack_chart(release)) as archive:
            self.assertIn(f'\nhome: "{WEB}"\nsources: ["{WEB}"]\n', archive.extractfile("redlatch/Chart.yaml").read().decode())
        for folder in [maven.CLIENT, maven.EXTENSION]:
            (self.folder / "pom.xml").write_text(maven.pom(folder), encoding="utf-8")
            said = common.output("mvn", "--batch-mode", "--no-transfer-progress", CENTRAL, "-Dchecker.release=false", folder=self.folder)
            self.assertIn("passes all checks", said)
        with zipfile.ZipFile(maven.pack_extension(release)[0]) as jar:
            (manifest,) = [name for name in jar.namelist() if name.endswith("/pom.xml")]
            self.assertEqual(jar.read(manifest).decode(), maven.pom(maven.EXTENSION))
        wheel.pack_sdist(release)
        with tarfile.open(self.out / f"redlatch-{release.version}.tar.gz") as sources:
            about = tomllib.load(sources.extractfile(f"redlatch-{release.version}/pyproject.toml"))["project"]
        self.assertEqual(about["maintainers"], [{"name": "Some One", "email": "some@example.com"}])
        addresses = ["http://example.com", *(WEB + end for end in ["/", ".git", "#a", '"', ", b", "\\", "{", "?a=b", ")", "[b]"])]
        addresses.append("https://name:password@example.com/a")
        wrong_names = ['Some "One"', "One, Two", "One; Two", "Team: One", "one@example.com", "100%", "A\\", " One", "One ", "One  Two"]
        people = ["Some One", "One <some)@example.com>", *(f"{name} <some@example.com>" for name in wrong_names)]
        wrong_ones = [{"repository": each} for each in addresses] + [{"maintainer": name} for name in people]
        for wrong in [*wrong_ones, {"security": "nobody"}, {"security": "<some@example.com>"}]:
            have(self, PLACE | wrong)
            with self.assertRaises(Failure, msg=wrong):
                home.home()

    def test_a_project_whose_files_say_another_place(self) -> None:
        have(self, PLACE)
        with self.assertRaisesRegex(Failure, "README.md does not name the repository"):
            home.check_publishable()

    def test_pages_that_say_that_nothing_is_published(self) -> None:
        have(self, PLACE)
        self.enterContext(unittest.mock.patch.dict(home.WRITTEN, clear=True))
        pages = {f"page{number}.md": text for number, text in enumerate(["not published\nyet", "released yet", "is published"])}
        for name, text in pages.items():
            (self.folder / name).write_text(text)
        self.enterContext(unittest.mock.patch.object(home, "ROOT", self.folder))
        self.enterContext(unittest.mock.patch.object(home, "tracked", lambda *_names: list(pages)))
        with self.assertRaisesRegex(Failure, "released yet: page0.md, page1.md$"):
            home.check_publishable()

    def test_a_lock_client_of_another_version(self) -> None:
        release = Release("9.9.9", 0, self.out)
        for pack in [wheel.pack_client, npm.pack_client, golang.pack_client, maven.pack_client]:
            with self.assertRaisesRegex(Failure, "is of version .*, not 9.9.9"):
                pack(release)


if __name__ == "__main__":
    PROGRAM = pathlib.Path(sys.argv.pop(1)).absolute()
    unittest.main()
