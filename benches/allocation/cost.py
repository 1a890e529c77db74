#!/usr/bin/env python3
"""What requests for any of several locks cost a server: the figures of docs/waiting.md.

Usage: cost.py [--redlatch target/release/redlatch] [--redis redis-server] [--waiters 10000] [--cycles 20000]

Prints the memory of requests that wait for any of 100 and of 1,000 locks, the CPU time of a release with 10 and with all of
them waiting for any of 10 and of 100 locks, and the CPU time of taking one of 10 free locks and releasing it, and of BLPOP
and RPUSH. Linux only; standard library only.
"""

import argparse
import collections
import pathlib
import resource
import socket
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from beside.cost import observed  # noqa: E402

HOUR_MS = "3600000"
BATCH = 5  # Releases between two looks at the CPU time: fewer than wait.


class Link:
    """A connection, and the owner of its locks."""

    def __init__(self, path, owner="all"):
        self.socket, self.owner = socket.socket(socket.AF_UNIX), owner
        self.socket.connect(path)
        self.replies = self.socket.makefile("rb")

    def send(self, *words):
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words))

    def reply(self):
        line = self.replies.readline().strip()
        kind, value = line[:1], line[1:].decode()
        assert kind in (b"*", b"$", b":", b"+"), line
        if kind == b"*":
            return [self.reply() for _ in range(int(value))]
        return self.replies.read(int(value) + 2)[:-2].decode() if kind == b"$" else value

    def ask(self, *words):
        self.send(*words)
        return self.reply()

    def info(self, field):
        (line,) = [line for line in self.ask("INFO").splitlines() if line.startswith(f"{field}:")]
        return int(line.split(":")[1])

    def ask_for_any(self, names, *options):
        self.send("LOCK.MACQUIRE", str(len(names)), *names, self.owner, "ANY", "1", "JUSTTOKEN", "LEASE", HOUR_MS, *options)


def cpu_us(server):
    """Microseconds that the threads of a process have computed."""
    stats = pathlib.Path(f"/proc/{server.pid}/task").glob("*/schedstat")
    return sum(int(stat.read_text().split()[0]) for stat in stats) / 1_000


class Queue:
    """Connections that wait for any of some locks, the first first; `holder` has all of these."""

    def __init__(self, path, names, count):
        self.names, self.links, self.asked = names, collections.deque(), 0
        self.control, self.holder = Link(path), Link(path)
        self.control.ask("CONFIG", "SET", "maxclients", str(count + 100))
        self.holder.ask("LOCK.MACQUIRE", str(len(names)), *names, "all", "LEASE", HOUR_MS)
        links = [Link(path) for _ in range(count)]
        idle = self.control.info("used_memory")
        for link in links:
            self.add(link)
        self.bytes = self.control.info("used_memory") - idle

    def add(self, link):
        link.owner, self.asked = f"owner-{self.asked}", self.asked + 1
        link.ask_for_any(self.names, "WAIT", HOUR_MS)
        self.links.append(link)
        while self.control.info("blocked_clients") < len(self.links):
            pass

    def release_us(self, server, cycles):
        spent, holder, key = 0, self.holder, self.names[0]
        for _ in range(cycles // BATCH):
            before, gone = cpu_us(server), []
            for _ in range(BATCH):
                assert holder.ask("LOCK.RELEASE", key, holder.owner) == "1"
                gone.append(holder)
                holder = self.links.popleft()
                key = holder.reply()[0]
            spent += cpu_us(server) - before
            for link in gone:
                self.add(link)
        return spent / (cycles // BATCH * BATCH)


def locks(count):
    return [f"lock:{number}" for number in range(count)]


def take_us(server, path, cycles):
    link, before = Link(path), cpu_us(server)
    for _ in range(cycles):
        link.ask_for_any(locks(10))
        assert link.ask("LOCK.RELEASE", link.reply()[0], "all") == "1"
    return (cpu_us(server) - before) / cycles


def pop_us(server, path, cycles):
    link = Link(path)
    link.ask("RPUSH", "free", *locks(10))
    before = cpu_us(server)
    for _ in range(cycles):
        link.ask("RPUSH", "free", link.ask("BLPOP", "free", "0")[1])
    return (cpu_us(server) - before) / cycles


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redlatch", default="target/release/redlatch")
    parser.add_argument("--redis", default="redis-server")
    parser.add_argument("--waiters", type=int, default=10_000)
    parser.add_argument("--cycles", type=int, default=20_000)
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for names in [100, 1_000]:
        with observed(options.redlatch) as (_, path):
            queue = Queue(path, locks(names), options.waiters)
            print(f"{options.waiters} requests for any of {names} locks: {queue.bytes / 1e6:.1f} MB")
    for names, count in [(10, 10), (10, options.waiters), (100, 10), (100, options.waiters)]:
        with observed(options.redlatch) as (server, path):
            spent = Queue(path, locks(names), count).release_us(server, options.cycles)
            print(f"a release with {count} requests for any of {names} locks: {spent:.1f} us")
    for name, program, run in [("any of 10 locks", options.redlatch, take_us), ("BLPOP and RPUSH", options.redis, pop_us)]:
        with observed(program) as (server, path):
            print(f"{name}: {run(server, path, options.cycles):.1f} us")


if __name__ == "__main__":
    main()
