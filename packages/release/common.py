"""What every module uses: failures, other programs, the version and the date of a release."""

import dataclasses
import datetime
import os
import pathlib
import subprocess
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
LICENCES = ["LICENSE-APACHE", "LICENSE-MIT"]
SUMMARY = "A lock server that speaks the Redis protocol"


class Failure(Exception):
    """Why there is no release, in one sentence that says what to do."""


def output(*command: str | pathlib.Path, folder: pathlib.Path = ROOT, env: dict[str, str] | None = None) -> str:
    """What a program prints."""
    try:
        done = subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.PIPE, encoding="utf-8")
    except FileNotFoundError:
        raise Failure(f"{command[0]} is not installed") from None
    except OSError as error:
        raise Failure(f"{command[0]} cannot be run on this machine: {error.strerror}") from None
    except subprocess.CalledProcessError as error:
        raise Failure(f"'{' '.join(map(str, command))}' exits with {error.returncode}") from None
    return done.stdout


def tracked(*names: str) -> list[str]:
    """The files of the repository below these names."""
    files = output("git", "ls-files", "-z", "--", *names).split("\0")[:-1]
    if not files:
        raise Failure(f"git has no files {', '.join(names)}: a release is made in a clone of the repository")
    return files


@dataclasses.dataclass(frozen=True)
class Release:
    """What all files of a release have in common."""

    version: str
    # Seconds since 1970: the time of every file in every archive.
    seconds: int
    out: pathlib.Path

    @property
    def moment(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.seconds, datetime.timezone.utc)

    @property
    def date(self) -> str:
        return self.moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def environment(self) -> dict[str, str]:
        """For programs that pack: they take the date from here."""
        return {**os.environ, "SOURCE_DATE_EPOCH": str(self.seconds), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def begin(out: pathlib.Path) -> Release:
    """The release of these sources. Its date is SOURCE_DATE_EPOCH, or that of the last commit."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    return Release(version, seconds(), out)


def seconds() -> int:
    """The date of the release, in seconds since 1970."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None and not given.isdecimal():
        raise Failure(f"SOURCE_DATE_EPOCH is '{given}': it must be a number of seconds since 1970")
    return int(given or output("git", "log", "-1", "--format=%ct"))


def check_version(release: Release, file: pathlib.Path, found: str) -> None:
    """A package has the version of the release."""
    if found != release.version:
        raise Failure(f"{file} is of version {found}, not {release.version}")
