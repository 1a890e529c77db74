"""What the head of a program tells: its platform, its C library, and whether it still has symbols.

Source  the forms ELF, PE and Mach-O; only the fields that are read here. A file that lies about its offsets is refused.
"""

import dataclasses
import pathlib
import re
import struct

from .common import Failure
from .targets import GLIBC_MIN, Target, find

ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
PE_MACHINES = {0x8664: "x86_64", 0xAA64: "aarch64"}
# The command of a Mach-O file that tells the oldest macOS, and where in it.
MACH_OLDEST = {0x32: 12, 0x24: 8}
MACH_MACHINES = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
GLIBC = re.compile(rb"\0GLIBC_2\.(\d+)(?:\.\d+)?(?=\0)")


@dataclasses.dataclass(frozen=True)
class Program:
    """`needs` is the oldest glibc, or macOS, that the program runs with; zeros where it is neither."""

    path: pathlib.Path
    target: Target
    needs: tuple[int, int]
    has_symbols: bool


def read(path: pathlib.Path) -> Program:
    """Reads the head of a program."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise Failure(f"there is no program {path}: build it with 'cargo build --release', or leave --binary out") from None
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}") from None
    try:
        if data[:4] == b"\x7fELF":
            return elf(path, data)
        if data[:2] == b"MZ":
            return pe(path, data)
        if data[:4] == b"\xcf\xfa\xed\xfe":
            return mach(path, data)
    except struct.error:
        raise Failure(f"{path} is damaged: it ends within its own head") from None
    raise Failure(f"{path} is not a 64-bit program of Linux, Windows or macOS")


def made(path: pathlib.Path, system: str, machine: str | None, libc: str, needs: tuple[int, int], has_symbols: bool) -> Program:
    target = find(system, machine or "", libc)
    if target is None:
        raise Failure(f"{path} is for a processor that no release has a program for")
    return Program(path, target, needs, has_symbols)


def elf(path: pathlib.Path, data: bytes) -> Program:
    """A static program is one for musl: it names no loader."""
    if data[4:6] != b"\x02\x01":
        raise Failure(f"{path} is not a 64-bit program of Linux")
    (machine,) = struct.unpack_from("<H", data, 18)
    segments, sections = struct.unpack_from("<QQ", data, 32)
    segment_size, segment_count, section_size, section_count = struct.unpack_from("<HHHH", data, 54)
    loader = b""
    for index in range(segment_count):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", data, segments + index * segment_size)
        if kind == 3:
            loader = data[offset : offset + size]
    kinds = [struct.unpack_from("<I", data, sections + index * section_size + 4)[0] for index in range(section_count)]
    if b"/ld-musl" in loader:
        raise Failure(f"{path} is not static: build it with the target for musl as it is, without 'crt-static' turned off")
    versions = [int(number) for number in GLIBC.findall(data)] if loader else []
    libc = "glibc" if loader else "musl"
    needs = (2, max(versions)) if versions else (0, 0)
    return made(path, "linux", ELF_MACHINES.get(machine), libc, needs, 2 in kinds)


def pe(path: pathlib.Path, data: bytes) -> Program:
    (head,) = struct.unpack_from("<I", data, 60)
    if data[head : head + 4] != b"PE\0\0":
        raise Failure(f"{path} is not a program of Windows: it has no PE header")
    machine, _, _, _, symbols = struct.unpack_from("<HHIII", data, head + 4)
    return made(path, "windows", PE_MACHINES.get(machine), "", (0, 0), symbols > 0)


def mach(path: pathlib.Path, data: bytes) -> Program:
    """Symbols that a debugger needs are not told from those that the loader needs: `has_symbols` is false."""
    (machine,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<I", data, 16)
    needs, place = (0, 0), 32
    for _ in range(count):
        kind, size = struct.unpack_from("<II", data, place)
        if kind in MACH_OLDEST:
            (oldest,) = struct.unpack_from("<I", data, place + MACH_OLDEST[kind])
            needs = (oldest >> 16, oldest >> 8 & 0xFF)
        place += size
    return made(path, "macos", MACH_MACHINES.get(machine), "", needs, False)


def check_glibc(program: Program) -> None:
    """A program that others install needs no newer glibc than those of their systems."""
    if program.needs > GLIBC_MIN and program.target.libc == "glibc":
        needed, oldest = (".".join(map(str, version)) for version in (program.needs, GLIBC_MIN))
        raise Failure(f"{program.path} needs glibc {needed}, not {oldest}: build it with release.py and cargo-zigbuild")


def check(path: pathlib.Path, target: Target | None) -> Program:
    """Reads a program that is to be packed for `target`, or for the platform that its head names."""
    program = read(path)
    if target and program.target != target:
        raise Failure(
            f"{path} is a program for {program.target.words}, not for {target.words}: "
            f"name it with --target {program.target.triple}, or build the other one"
        )
    if program.has_symbols:
        raise Failure(f"{path} is not stripped: build it with --release")
    return program
