"""Calls cargo, with a linker and a C compiler for the target.

Zig brings both for Linux and macOS: `pip install cargo-zigbuild ziglang`. Only it builds programs for glibc, which it links to an old
one. For macOS it lacks Apple's frameworks, which only an SDK has. Linking takes no more than the names in them, so these are written
here: what the crate `sysinfo` calls.

A program has no path of the machine that it is built on, in its panics or in the C of its crates: one from another folder is the same.
"""

import os
import pathlib
import shlex
import shutil
import subprocess
import tomllib

from .common import ROOT, Failure, output, seconds
from .targets import GLIBC_MIN, Target, machine_here

# Profiles of Cargo.toml: their folders below cargo's target directory have the same name.
RELEASE = "release"
WHEEL = "wheel"
# Older ones Rust does not build for.
MACOS_OLDEST = {"x86_64": "10.12", "aarch64": "11.0"}
FRAMEWORKS = {
    "CoreFoundation": """CFDataGetBytes CFDataGetLength CFDataGetTypeID CFGetTypeID CFRelease CFRetain CFStringCreateWithBytesNoCopy
        kCFAllocatorDefault kCFAllocatorNull""",
    "IOKit": """IOIteratorNext IOObjectRelease IORegistryEntryCreateCFProperty IORegistryEntryGetName IOServiceGetMatchingServices
        IOServiceMatching kIOMasterPortDefault""",
}
FRAMEWORK = """--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos, x86_64-macos ]
install-name: '/System/Library/Frameworks/{name}.framework/Versions/A/{name}'
exports:
  - targets: [ arm64-macos, x86_64-macos ]
    symbols: [ {symbols} ]
...
"""


def feature_flags(features: str) -> list[str]:
    if features in ("all", "default"):
        return ["--all-features"] if features == "all" else []
    return ["--no-default-features", "--features", features]


def wheel_features() -> str:
    """What the program of a wheel has: as little as tests of locks need, as in a wheel that pip builds from the sdist."""
    manifest = tomllib.loads((ROOT / "packages/python/pyproject.toml").read_text(encoding="utf-8"))
    return ",".join(manifest["tool"]["maturin"]["features"])


def target_folder() -> pathlib.Path:
    # cargo, too, is called in this folder.
    return ROOT / os.environ.get("CARGO_TARGET_DIR", "target")


def write_frameworks() -> pathlib.Path:
    """Writes the names in the frameworks as the linker reads them, and returns the folder."""
    folder = target_folder().absolute() / "frameworks"
    for name, symbols in FRAMEWORKS.items():
        file = folder / f"{name}.framework/{name}.tbd"
        file.parent.mkdir(parents=True, exist_ok=True)
        names = ", ".join(f"_{symbol}" for symbol in symbols.split())
        file.write_text(FRAMEWORK.format(name=name, symbols=names), encoding="utf-8")
    return folder


def needs_frameworks(target: Target) -> bool:
    return target.system == "macos" and not target.runs_here and "SDKROOT" not in os.environ


def compiler(target: Target) -> tuple[str, dict[str, str]]:
    """The command in place of `cargo`, and the variables that it needs."""
    name = f"CC_{target.triple.replace('-', '_')}"
    oldest = {"MACOSX_DEPLOYMENT_TARGET": MACOS_OLDEST[target.machine]} if target.system == "macos" else {}
    if name in os.environ or target.runs_here and target.system != "linux":
        return "cargo", oldest
    if target.triple == f"{machine_here()}-unknown-linux-musl" and shutil.which("musl-gcc"):
        return "cargo", {name: "musl-gcc"}
    if target.system == "windows" and shutil.which("x86_64-w64-mingw32-gcc"):
        return "cargo", {}
    if shutil.which("cargo-zigbuild"):
        return "cargo-zigbuild", oldest
    packages = {"windows": "gcc-mingw-w64-x86-64", "linux": "musl-tools" if target.runs_here and target.is_static else ""}
    package = packages.get(target.system)
    by_hand = f"apt-get install {package}, or " if package else ""
    raise Failure(f"a C compiler for {target.triple} is missing: {by_hand}pip install cargo-zigbuild ziglang, or set {name}")


def same_anywhere(target: Target) -> dict[str, str]:
    """By these variables both compilers call the folders of this repository and of the packages the same, and C that tells its date
    tells that of the release."""
    home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    # It unpacks the packages, so that their folders are there.
    output("cargo", "fetch", "--locked", "--target", target.triple)
    names = {folder: "crates" for folder in home.glob("registry/src/*")}
    # Of several that fit, the last one counts.
    names |= {ROOT: "redlatch", target_folder().absolute(): "target"}
    maps = [f"{folder}=/{short}" for folder, short in names.items()]
    of_c = f"CFLAGS_{target.triple.replace('-', '_')}"
    encoded = os.environ.get("CARGO_ENCODED_RUSTFLAGS")
    given = encoded.split("\x1f") if encoded else os.environ.get("RUSTFLAGS", "").split()
    rust = [*given, *[f"--remap-path-prefix={each}" for each in maps]]
    c = [os.environ.get(of_c, ""), *[shlex.quote(f"-ffile-prefix-map={each}") for each in maps]]
    made = {"CARGO_ENCODED_RUSTFLAGS": "\x1f".join(rust), of_c: " ".join(c).strip(), "CC_SHELL_ESCAPED_FLAGS": "1"}
    return made | {"SOURCE_DATE_EPOCH": str(seconds())}


def build(target: Target, features: str, profile: str) -> pathlib.Path:
    """Builds the program for `target`, and returns it."""
    library = pathlib.Path(output("rustc", "--print", "sysroot").strip()) / "lib/rustlib" / target.triple
    if not library.exists():
        raise Failure(f"Rust's target {target.triple} is not installed: rustup target add {target.triple}")
    cargo, variables = compiler(target)
    glibc = "." + ".".join(map(str, GLIBC_MIN)) if cargo == "cargo-zigbuild" and target.libc == "glibc" else ""
    command = [cargo, "rustc", "--profile", profile, "--locked", "--bin", "redlatch", "--target", target.triple + glibc]
    command += feature_flags(features)
    if needs_frameworks(target):
        command += ["--", "-C", f"link-arg=-F{write_frameworks()}"]
    if subprocess.run(command, cwd=ROOT, env={**os.environ, **same_anywhere(target), **variables}).returncode != 0:
        raise Failure(f"cargo cannot build for {target.triple}")
    return target_folder() / target.triple / profile / target.program


def build_here(features: str) -> pathlib.Path:
    """Builds a program of this machine that writes man pages and completions: quickly, in cargo's development profile."""
    command = ["cargo", "build", "--locked", "--bin", "redlatch", *feature_flags(features)]
    if subprocess.run(command, cwd=ROOT).returncode != 0:
        raise Failure("cargo cannot build the program of this machine that writes the man pages: name one with --host-binary")
    return target_folder() / "debug" / ("redlatch.exe" if os.name == "nt" else "redlatch")
