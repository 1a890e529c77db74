"""A client's own tests of locks and what locks are made of, against the server that the environment names."""

import os
import pathlib
import shutil
import sys
import tarfile

import pytest

HOST = os.environ.get("REDLATCH_HOST", "")
PORT = os.environ.get("REDLATCH_PORT", "")
SOURCES = pathlib.Path("sources")

# Marked by its authors for a cluster, and for modules.
MARKS = "not onlycluster and not redismod"
# These test commands that no lock needs: BITFIELD, SORT, consumer groups, unions and intersections of sets.
NAMES = "not bitfield and not combin and not exec_no_unwatch and not reset_unwatch and not bloom and not sort and not stream"
REDIS_PY = ["lock", "scripting", "pipeline"]
WALRUS = ["lock", "rate_limit", "containers", "counter", "cache"]


def unpack():
    """The archives that `pip download` left, each below its own name without the version."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    for archive in pathlib.Path("sdists").glob("*.tar.gz"):
        with tarfile.open(archive) as opened:
            opened.extractall(SOURCES, filter="data")
        # The next version's would lie beside it.
        archive.unlink()
    for folder in list(SOURCES.iterdir()):
        folder.rename(SOURCES / folder.name.split("-")[0])


def arguments(suite):
    """What pytest is told."""
    chosen = ["-m", MARKS, "-k", NAMES, "-p", "no:cacheprovider", "-p", "no:warnings", "-q", "--tb=short"]
    if suite == "walrus":
        os.environ["WALRUS_REDIS_HOST"], os.environ["WALRUS_REDIS_PORT"] = HOST, PORT
        return [*chosen, "--pyargs", *(f"walrus.tests.{part}" for part in WALRUS)]
    os.chdir(SOURCES / "redis")
    files = [f"{folder}/test_{part}.py" for folder in ["tests", "tests/test_asyncio"] for part in REDIS_PY]
    return [*chosen, "--timeout=60", f"--redis-url=redis://{HOST}:{PORT}/0", *files]


class Checks:
    """Prints `ok` and its name for each test that passed."""

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            print(f"\nok {report.nodeid}", flush=True)


if sys.argv[1] == "unpack":
    sys.exit(unpack())
sys.path.insert(0, "")
status = pytest.main(arguments(sys.argv[1]), plugins=[Checks()])
if status != 0:
    sys.exit(int(status))
print("done", flush=True)
