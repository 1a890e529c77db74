"""The servers that scenarios are run on. Each is a place: what an adapter needs to open a client there, a connection beside
that client, and a way to restart it.

Owns    the processes and namespaces, which end with the scenario or with the run.
Knows   the test package `redlatch`, which speaks the protocol and starts servers with test commands; `deploy/cluster.py`, which
        starts nodes.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Optional, TypeVar

PACKAGES = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PACKAGES / "python/python"), str(PACKAGES / "deploy")]

import cluster
import redlatch
from redlatch._resp import Connection

PATIENCE_SECONDS = 30.0
# The default of `cluster-node-timeout`, and a bit.
FAILOVER_SECONDS = 15.001
# That of the key `k`, which all scenarios of clusters use.
SLOT_OF_K = 7629


# Ports that are tried for one server.
PORT_TRIES = 5
Started = TypeVar("Started")


class PortTaken(AssertionError):
    """Another program has taken the port of a server."""


class Missing(Exception):
    """A program that a place needs is not there. The text says which."""


@dataclass
class Place:
    #: What `open` is given.
    where: dict[str, Any]
    #: Sends words beside the client, and returns the reply.
    ask: Callable[..., Any]
    restart: Optional[Callable[[], None]] = None


def program(variable: str, name: str) -> str:
    """The path of a server that a variable names, or that is in the search path. Raises `Missing`."""
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
    found = os.environ.get(variable) or shutil.which(name, path=folders)
    if not found:
        raise Missing(f"there is no {name}: {variable} names it")
    return found


def await_until(is_so: Callable[[], Any], what: str) -> Any:
    """What a question is answered, once that is true, while connections break."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        with contextlib.suppress(OSError, redlatch.CommandError):
            if found := is_so():
                return found
        if time.monotonic() > until:
            raise AssertionError(f"{what}, after {PATIENCE_SECONDS:.0f} s")
        time.sleep(0.005)


class Beside:
    """A connection of an operator, who takes no locks. One that has ended is made anew by the next request."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._connection: Optional[Connection] = None

    def __call__(self, *words: Any) -> Any:
        self._connection = self._connection or self._connect()
        try:
            return self._connection.call(*words)
        except OSError:
            self._connection = None
            raise

    def close(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None


def connect(port: int, password: Optional[str] = None) -> Connection:
    return Connection("127.0.0.1", port, password, PATIENCE_SECONDS)


class Process:
    """A server at a port and a Unix socket, in a directory of its own, which may be killed and started again."""

    def __init__(self, folder: str, port: int, *words: str) -> None:
        self.folder, self.socket, self.port = folder, f"{folder}/s", port
        self._words = [*words, "--port", str(self.port), "--unixsocket", self.socket, "--loglevel", "warning"]

    def start(self) -> None:
        self._process = launch(self.folder, self._words)
        await_until(self._serves, f"{self._words[0]} does not start")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        # The socket of the one that was killed would be taken for that of the next one.
        pathlib.Path(self.socket).unlink(missing_ok=True)
        self.start()

    def _serves(self) -> bool:
        check_runs(self._process, self.folder)
        return answers(self.port) and os.path.exists(self.socket)


def launch(folder: str, words: list[str]) -> subprocess.Popen[bytes]:
    with open(f"{folder}/log", "ab") as log:
        return subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def check_runs(process: subprocess.Popen[bytes], folder: str) -> None:
    """Raises `PortTaken`, or another error with the log of the server, if it has ended."""
    if process.poll() is None:
        return
    log = pathlib.Path(folder, "log").read_text(errors="replace")
    raise (PortTaken if "Address already in use" in log else AssertionError)(f"a server has ended: {log}")


def on_a_free_port(start: Callable[[int], Started]) -> Started:
    """What `start` returns for a free port. Another program may take a port before the server does."""
    for _ in range(PORT_TRIES - 1):
        with contextlib.suppress(PortTaken):
            return start(*cluster.free_ports(1))
    return start(*cluster.free_ports(1))


def answers(port: int) -> bool:
    with contextlib.closing(connect(port)) as connection:
        return connection.call("PING") == "PONG"


@contextlib.contextmanager
def process_of(*words: str) -> Iterator[Process]:
    def start(port: int) -> Process:
        process = Process(tempfile.mkdtemp(prefix="r", dir=folder), port, *words)
        try:
            process.start()
        except BaseException:
            process.kill()
            raise
        return process

    with tempfile.TemporaryDirectory(prefix="r") as folder:
        process = on_a_free_port(start)
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def process_place(process: Process, connection: str) -> Iterator[Place]:
    where = {"path": process.socket} if connection == "unix" else {"host": "127.0.0.1", "port": process.port}
    with contextlib.closing(Beside(lambda: connect(process.port))) as beside:
        yield Place(where, beside, process.restart)


@contextlib.contextmanager
def plain(product: str, connection: str) -> Iterator[Place]:
    words = [program(f"REDLATCH_{product.upper()}_SERVER", f"{product}-server"), "--save", ""]
    with process_of(*words) as process, process_place(process, connection) as place:
        if connection != "sentinel":
            yield place
            return
        with sentinel(words[0], process.port) as port:
            yield Place({"host": "127.0.0.1", "port": port, "ports": [port], "master": "locks"}, place.ask)


@contextlib.contextmanager
def sentinel(program: str, watched: int) -> Iterator[int]:
    """The port of a Sentinel of Redis that watches a server."""
    def start(port: int) -> tuple[subprocess.Popen[bytes], int]:
        own = tempfile.mkdtemp(dir=folder)
        config = pathlib.Path(own, "sentinel.conf")
        config.write_text(f"port {port}\nsentinel monitor locks 127.0.0.1 {watched} 1\n")
        process = launch(own, [program, str(config), "--sentinel"])

        def serves() -> bool:
            check_runs(process, own)
            return answers(port)

        try:
            await_until(serves, "the Sentinel does not start")
        except BaseException:
            process.kill()
            raise
        return process, port

    with tempfile.TemporaryDirectory() as folder:
        process, port = on_a_free_port(start)
        try:
            yield port
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def with_journal(connection: str) -> Iterator[Place]:
    with process_of(redlatch.find_binary(), "--dir", ".") as process, process_place(process, connection) as place:
        yield place


class Nodes(cluster.Cluster):
    """Two nodes on an etcd, which clients find as Sentinels."""

    def __init__(self, folder: str) -> None:
        super().__init__(redlatch.find_binary(), program("REDLATCH_ETCD", "etcd"), pathlib.Path(folder))
        words = [self.redlatch, "check-config", "--cluster-etcd", "http://127.0.0.1:1"]
        if "lacks the feature" in subprocess.run(words, capture_output=True, text=True).stderr:
            raise Missing(f"{self.redlatch} has no feature etcd")

    def begin(self) -> None:
        self.start_etcd(1)
        self.ports = cluster.free_ports(2)
        self._nodes = {port: self.start_node(port) for port in self.ports}
        self.leader()

    def leader(self) -> int:
        """The port of the node that leads, once both answer and agree."""
        for port in self.ports:
            cluster.ask(port, "PING")
        leads = lambda: self._leads(*(cluster.leader(port) for port in self.ports))
        return await_until(leads, "the nodes do not agree who leads")

    @staticmethod
    def _leads(one: int, other: int) -> int:
        return one if one == other else 0

    def kill_leader(self) -> None:
        """Ends it, and starts it again as a standby."""
        port = self.leader()
        self._nodes[port].kill()
        self._nodes[port].wait()
        self._nodes[port] = self.start_node(port)


class Servers:
    """What several scenarios share: servers with test commands, of which each scenario has a namespace, and idle nodes."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._lock = threading.Lock()
        self._shared: dict[tuple[int, ...], redlatch.Server] = {}
        self._peers: Optional[dict[str, int]] = None
        self._nodes: queue.SimpleQueue[Nodes] = queue.SimpleQueue()

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def place(self, server: str, connection: str, detail: str) -> contextlib.AbstractContextManager[Place]:
        """`detail`: the product or the peer. Raises `Missing`, then or when it is entered."""
        match server, connection:
            case "redlatch", "sentinel":
                return self._on_nodes()
            case "redlatch", "cluster":
                return self._cluster(3)
            case "redlatch", _:
                return self._namespace()
            case "redlatch-cluster", _:
                return self._cluster(6, "--cluster-replicas", "1")
            case "redlatch-replicated", _:
                return self._on_nodes()
            case "redlatch-with-journal", _:
                return with_journal(connection)
            case "plain", _:
                return plain(detail, connection)
            case "hostile", _:
                return contextlib.nullcontext(self._hostile(detail))
        raise LookupError(f"no such server: {server}")

    def _server(self, nodes: int, *arguments: str) -> redlatch.Server:
        with self._lock:
            if (nodes,) not in self._shared:
                self._shared[nodes,] = self._stack.enter_context(redlatch.Server(*arguments, nodes=nodes))
            return self._shared[nodes,]

    @contextlib.contextmanager
    def _namespace(self) -> Iterator[Place]:
        with self._server(1).namespace() as namespace:
            with contextlib.closing(Beside(lambda: connect(namespace.port, namespace.password))) as beside:
                yield Place(namespace.kwargs, beside)

    @contextlib.contextmanager
    def _cluster(self, nodes: int, *arguments: str) -> Iterator[Place]:
        server = self._server(nodes, "--cluster-enabled", "yes", *arguments)
        with server.namespace() as namespace:

            def master() -> int:
                slots = namespace.call("CLUSTER", "SLOTS")
                return next(node[1] for first, last, node, *_ in slots if first <= SLOT_OF_K <= last)

            def crash_master() -> None:
                namespace.nodes.crash(server.ports.index(master()) + 1)
                beside.close()
                namespace.clock.advance(FAILOVER_SECONDS)

            with contextlib.closing(Beside(lambda: connect(master(), namespace.password))) as beside:
                yield Place({**namespace.kwargs, "ports": server.ports}, beside, crash_master)

    def _hostile(self, peer: str) -> Place:
        server = self._server(1)
        with self._lock:
            if self._peers is None:
                self._peers = self._stack.enter_context(peers(server.port))

        def ask(*words: Any) -> Any:
            raise AssertionError("nobody is served")

        return Place({"host": "127.0.0.1", "port": self._peers[peer], "hostile": True}, ask)

    @contextlib.contextmanager
    def _on_nodes(self) -> Iterator[Place]:
        try:
            nodes = self._nodes.get_nowait()
        except queue.Empty:
            nodes = self._start_nodes()

        def kill_leader() -> None:
            nodes.kill_leader()
            beside.close()

        with contextlib.closing(Beside(lambda: connect(nodes.leader()))) as beside:
            await_until(lambda: beside("FLUSHALL"), "the leader does not remove all keys")
            where = {"host": "127.0.0.1", "port": nodes.ports[1], "ports": nodes.ports, "master": "mymaster"}
            yield Place(where, beside, kill_leader)
        self._nodes.put(nodes)

    def _start_nodes(self) -> Nodes:
        folder = tempfile.mkdtemp()
        nodes = Nodes(folder)
        with self._lock:
            self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
            self._stack.callback(nodes.end)
        nodes.begin()
        return nodes


@contextlib.contextmanager
def peers(port: int) -> Iterator[dict[str, int]]:
    """The ports of servers that serve nobody, by name. `port`: of a server that serves."""
    words = [sys.executable, str(pathlib.Path(__file__).with_name("peer.py")), str(port)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        yield json.loads(process.stdout.readline())
        process.stdin.close()
