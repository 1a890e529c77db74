"""The runner for `redlatch explore`: what is found with it, and what its runs leave to each other, which is nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from redlatch._server import find_binary

HEAD = """
import contextlib
import os
import time
import redis

client = redis.Redis.from_url(os.environ["REDIS_URL"])
runs = []
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end"

def give_back():
    "Asks until a server answers: it may be about to restart."
    for _ in range(1000):
        with contextlib.suppress(redis.ConnectionError):
            return client.eval(RELEASE, 1, "orders", "me")
        time.sleep(0.005)
"""

RIGHT = """
def test_pay():
    runs.append(1)
    assert runs == [1], "a run before this one has left something"
    lock = client.lock("orders", timeout=10)
    try:
        assert lock.acquire(blocking=False, token="me")
    except redis.RedisError:
        # It may have been granted.
        give_back()
        raise
    lock.release()
"""

WRONG = """
def test_pay():
    assert client.set("orders", "me", nx=True, px=5000)
    client.incr("paid")
    client.delete("orders")
"""


def explore(folder: Path, test: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Explores a file with this test, in a folder of its own."""
    file = folder / "test_orders.py"
    file.write_text(HEAD + test)
    command = [sys.executable, "-m", "redlatch.explore", "-q", "-p", "no:cacheprovider", str(file)]
    options = ["--runner", "--format", "json", "--timeout", "60s", *more]
    return subprocess.run(
        [find_binary(), "explore", *options, "--", *command], cwd=folder, capture_output=True, text=True, check=False
    )


def test_a_lock_that_is_deleted_without_a_look_is_found(tmp_path: Path) -> None:
    done = explore(tmp_path, WRONG)
    found = {(line["finding"], line["case"]) for line in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 1, done.stderr
    assert ("foreign-delete", "paused@SET:1") in found
    assert "19 failures met" in done.stderr


def test_each_run_begins_anew_and_nothing_is_found_in_a_test_that_is_right(tmp_path: Path) -> None:
    done = explore(tmp_path, RIGHT)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_the_test_that_is_printed_fails_until_the_bug_is_mended(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "redlatch").symlink_to(find_binary())
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    finding = json.loads(explore(tmp_path, WRONG, "--case", "delayed@DEL:1").stdout)
    kept = tmp_path / "test_kept.py"
    kept.write_text(finding["test"])

    def run() -> str:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(kept)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.stdout

    before = run()
    assert "foreign-delete with delayed@DEL:1: " in before and " 1 failed in " in before
    (tmp_path / "test_orders.py").write_text(HEAD + RIGHT)
    after = run()
    assert " 1 passed in " in after, after


def test_a_test_that_fails_by_itself_is_shown(tmp_path: Path) -> None:
    done = explore(tmp_path, "def test_pay(): assert client.ping() == 'pong', 'so it is'")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the command already fails without an injected failure" in done.stderr and "so it is" in done.stderr


@pytest.mark.parametrize("line", ["", "{}", "what"])
def test_a_line_of_another_form_ends_the_runner(line: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "redlatch.explore", str(tmp_path)]
    done = subprocess.run(command, input=line + "\n", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0 and done.stdout == ""
