"""The platforms that a release has programs for, and what each packer calls them."""

import dataclasses
import platform

from .common import Failure

# What programs for glibc are built for: the oldest one that Rust supports, and that pip has tags for.
GLIBC_MIN = (2, 17)


@dataclasses.dataclass(frozen=True)
class Target:
    """A platform. `libc` is empty where there is one C library only."""

    triple: str
    system: str
    machine: str
    libc: str = ""

    @property
    def program(self) -> str:
        return "redlatch.exe" if self.system == "windows" else "redlatch"

    @property
    def npm(self) -> str:
        """As in `@redlatch/linux-x64-musl`: Node's `process.platform` and `process.arch`."""
        system = {"linux": "linux", "macos": "darwin", "windows": "win32"}[self.system]
        machine = {"x86_64": "x64", "aarch64": "arm64"}[self.machine]
        return f"{system}-{machine}-musl" if self.libc == "musl" else f"{system}-{machine}"

    @property
    def oci(self) -> str:
        """What images and Debian call the processor."""
        return {"x86_64": "amd64", "aarch64": "arm64"}[self.machine]

    @property
    def is_static(self) -> bool:
        return self.libc == "musl"

    @property
    def runs_here(self) -> bool:
        """Whether this machine runs its programs. One for glibc may still be too new for it."""
        system = {"Linux": "linux", "Darwin": "macos", "Windows": "windows"}.get(platform.system())
        return (self.system, self.machine) == (system, machine_here())

    @property
    def words(self) -> str:
        """For people."""
        system = {"linux": "Linux", "macos": "macOS", "windows": "Windows"}[self.system]
        return f"{system} on {self.machine}" + (f", {self.libc}" if self.libc else "")


TARGETS = [
    Target("x86_64-unknown-linux-musl", "linux", "x86_64", "musl"),
    Target("aarch64-unknown-linux-musl", "linux", "aarch64", "musl"),
    Target("x86_64-unknown-linux-gnu", "linux", "x86_64", "glibc"),
    Target("aarch64-unknown-linux-gnu", "linux", "aarch64", "glibc"),
    Target("x86_64-pc-windows-gnu", "windows", "x86_64"),
    Target("x86_64-apple-darwin", "macos", "x86_64"),
    Target("aarch64-apple-darwin", "macos", "aarch64"),
]


def machine_here() -> str:
    """The processor of this machine, as Rust calls it."""
    machine = platform.machine()
    return {"AMD64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def target_of(triple: str) -> Target:
    for target in TARGETS:
        if target.triple == triple:
            return target
    raise Failure(f"there is no target {triple}: there are {', '.join(target.triple for target in TARGETS)}")


def find(system: str, machine: str, libc: str) -> Target | None:
    """The target of a program of this kind."""
    kind = (system, machine, libc)
    return next((target for target in TARGETS if (target.system, target.machine, target.libc) == kind), None)
