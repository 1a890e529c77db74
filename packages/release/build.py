"""Calls cargo, with a linker and a C compiler for the target."""

import os
import pathlib
import shutil
import subprocess

from .common import ROOT, Failure, output
from .targets import Target, machine_here

# Profiles of Cargo.toml: their folders below cargo's target directory have the same name.
RELEASE = "release"
WHEEL = "wheel"


def feature_flags(features: str) -> list[str]:
    if features in ("all", "default"):
        return ["--all-features"] if features == "all" else []
    return ["--no-default-features", "--features", features]


def target_folder() -> pathlib.Path:
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def linker(target: Target) -> tuple[list[str], dict[str, str]]:
    """The command in place of `cargo build`, and the variables that it needs."""
    name = target.triple.replace("-", "_")
    plain = ["cargo", "build"]
    if target.runs_here and target.libc != "musl" or f"CC_{name}" in os.environ:
        return plain, {}
    if target.triple == f"{machine_here()}-unknown-linux-musl" and shutil.which("musl-gcc"):
        return plain, {f"CC_{name}": "musl-gcc"}
    if target.system == "windows" and shutil.which("x86_64-w64-mingw32-gcc"):
        return plain, {}
    if shutil.which("cargo-zigbuild"):
        return ["cargo", "zigbuild"], {}
    package = "musl-tools" if target.libc == "musl" else "gcc-mingw-w64-x86-64"
    by_hand = "" if target.system == "macos" or not (target.runs_here or target.system == "windows") else f"apt-get install {package}, or "
    raise Failure(
        f"a C compiler for {target.triple} is missing: {by_hand}pip install cargo-zigbuild ziglang, or set CC_{name} "
        "and cargo's linker for it"
    )


def build(target: Target, features: str, profile: str) -> pathlib.Path:
    """Builds the program for `target`, and returns it."""
    library = pathlib.Path(output("rustc", "--print", "sysroot").strip()) / "lib/rustlib" / target.triple
    if not library.exists():
        raise Failure(f"Rust's target {target.triple} is not installed: rustup target add {target.triple}")
    command, variables = linker(target)
    command += ["--profile", profile, "--locked", "--bin", "redlatch", "--target", target.triple, *feature_flags(features)]
    if subprocess.run(command, cwd=ROOT, env=dict(os.environ, **variables)).returncode != 0:
        raise Failure(f"cargo cannot build for {target.triple}")
    return target_folder() / target.triple / profile / target.program


def build_here(features: str) -> pathlib.Path:
    """Builds a program of this machine that writes man pages and completions: quickly, in cargo's development profile."""
    command = ["cargo", "build", "--locked", "--bin", "redlatch", *feature_flags(features)]
    if subprocess.run(command, cwd=ROOT).returncode != 0:
        raise Failure("cargo cannot build the program of this machine that writes the man pages: name one with --host-binary")
    return target_folder() / "debug/redlatch"

