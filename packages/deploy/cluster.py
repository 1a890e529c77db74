#!/usr/bin/env python3
"""A cluster on this machine, to look at: three members of etcd, two nodes, and a lock that outlives the node that granted it.

    packages/deploy/cluster.py [--redlatch target/release/redlatch] [--etcd etcd]

Takes Python, etcd, and a redlatch with the feature `etcd`, as the released ones are. Everything is on free ports of 127.0.0.1 and in a
temporary directory; all of it has ended when the program has.
"""

import argparse
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

START = time.monotonic()
PATIENCE_SECS = 30


def say(text: str) -> None:
    print(f"{time.monotonic() - START:6.2f} s  {text}", flush=True)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Connection:
    """One connection to a node."""

    def __init__(self, port: int):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECS)
        self.file = self.socket.makefile("rb")

    def ask(self, *words: object):
        """Sends a request and returns its reply: a number, a text, a list, or None."""
        parts = [str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the node has closed the connection")
        kind, rest = line[:1], line[1:-2].decode()
        match kind:
            case b":":
                return int(rest)
            case b"$" if int(rest) >= 0:
                return self.file.read(int(rest) + 2)[:-2].decode()
            case b"*" if int(rest) >= 0:
                return [self.reply() for _ in range(int(rest))]
            case b"$" | b"*":
                return None
        return rest


def ask(port: int, *words: object):
    """Asks on a connection of its own, again and again while connections break or no node leads."""
    until = time.monotonic() + PATIENCE_SECS
    while True:
        try:
            answer = Connection(port).ask(*words)
            if not str(answer).startswith("MASTERDOWN"):
                return answer
            raise ConnectionError(answer)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def leader(port: int) -> int:
    return int(ask(port, "SENTINEL", "get-master-addr-by-name", "mymaster")[1])


class Cluster:
    def __init__(self, redlatch: str, etcd: str, directory: pathlib.Path):
        self.redlatch, self.etcd, self.directory = redlatch, etcd, directory
        self.processes: list[subprocess.Popen] = []
        self.endpoints = ""

    def start(self, name: str, *command: str, env: dict[str, str] | None = None) -> subprocess.Popen:
        with open(self.directory / f"{name}.log", "ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env)
        self.processes.append(process)
        return process

    def start_etcd(self, members: int) -> None:
        ports = free_ports(2 * members)
        clients, peers = ([f"http://127.0.0.1:{port}" for port in half] for half in (ports[:members], ports[members:]))
        self.endpoints = ",".join(clients)
        cluster = ",".join(f"m{number}={peer}" for number, peer in enumerate(peers))
        for number, (client, peer) in enumerate(zip(clients, peers)):
            self.start(
                f"etcd-{number}", self.etcd, "--name", f"m{number}", "--data-dir", str(self.directory / f"m{number}"),
                "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
                "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster,
            )

    def start_node(self, port: int) -> subprocess.Popen:
        return self.start(f"node-{port}", self.redlatch, "--port", str(port), "--cluster-etcd", self.endpoints)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def show(cluster: Cluster) -> None:
    cluster.start_etcd(3)
    first, second = free_ports(2)
    nodes = {first: cluster.start_node(first), second: cluster.start_node(second)}
    leads = leader(first)
    standby = second if leads == first else first
    say(f"the node on port {leads} leads, the one on port {standby} is a standby")

    client = Connection(standby)
    lease = client.ask("LOCK.ACQUIRE", "invoice:7", "worker-1", "LEASE", 30_000)
    say(f"worker-1 acquires invoice:7 through the standby: {lease}")

    nodes[leads].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    say(f"kill -9 of the node on port {leads}")
    other = ask(standby, "LOCK.ACQUIRE", "invoice:8", "worker-2", "LEASE", 30_000)
    say(f"worker-2 acquires invoice:8, {time.monotonic() - killed:.2f} s after the kill: {other}")
    assert leader(standby) == standby
    say(f"invoice:7 has {ask(standby, 'PTTL', 'invoice:7')} ms left, and is refused to worker-2: "
        f"{ask(standby, 'LOCK.ACQUIRE', 'invoice:7', 'worker-2', 'LEASE', 30_000)}")
    again = ask(standby, "LOCK.ACQUIRE", "invoice:7", "worker-1", "LEASE", 30_000)
    assert again[:2] == lease[:2], (lease, again)
    say(f"worker-1 asks again under its name, and has its token still: {again}")

    nodes[leads] = cluster.start_node(leads)
    assert leader(leads) == standby
    say(f"the node on port {leads} is back, as a standby")
    nodes[standby].send_signal(signal.SIGTERM)
    told = time.monotonic()
    nodes[standby].wait()
    assert ask(leads, "LOCK.RELEASE", "invoice:7", "worker-1") == 1
    say(f"SIGTERM to the leader; {1000 * (time.monotonic() - told):.0f} ms later the other one has released invoice:7")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--redlatch", default="target/release/redlatch", help="the program [default: %(default)s]")
    parser.add_argument("--etcd", default="etcd", help="the program [default: %(default)s]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="redlatch-cluster-") as directory:
        cluster = Cluster(options.redlatch, options.etcd, pathlib.Path(directory))
        try:
            show(cluster)
        finally:
            cluster.end()


if __name__ == "__main__":
    main()
