"""Servers for the tests: processes at a Unix socket, which end with the test that started them."""

import contextlib
import subprocess
import tempfile
import time

import redis

PATIENCE = 30.0


def await_until(is_so):
    until = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < until, "it is not so in time"
        time.sleep(0.005)


@contextlib.contextmanager
def process_of(*words):
    """The path of the socket of a program, in a directory of its own. `SOCKET` among the words stands for it."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/s"
        words = [path if word == "SOCKET" else word for word in words]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, cwd=folder)
        try:
            await_until(lambda: answers(path, process))
            yield path
        finally:
            process.kill()
            process.wait()


def answers(path, process):
    assert process.poll() is None, f"{process.args[0]} does not start"
    with contextlib.suppress(redis.RedisError, OSError), redis.Redis(unix_socket_path=path) as client:
        return client.ping()
