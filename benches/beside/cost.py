#!/usr/bin/env python3
"""What it costs a server that `redlatch beside` shows its locks.

Usage: cost.py --server redis-server --redlatch target/release/redlatch [--turns 5] [--seconds 10] [--rate 2000] [--keys 1000000]

Prints a table: latencies of lock clients and CPU time of the server without an observer and at each depth, and the memory
of the shadow. The depths take turns. Linux only; standard library only.
"""

import argparse
import contextlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile
import time

DEPTHS = ["none", "reading", "tracking"]
LOCKS = 1_000
# What the observer does before a turn begins: its first round ends soon with a thousand keys.
READY = b"All locks of the observed server are read"


def ask(path, *words):
    """The first line of the reply to a request over a Unix socket."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        link.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words))
        return link.makefile("rb").readline().strip()


@contextlib.contextmanager
def ended(process):
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def observed(program):
    """An empty server; yields its process and its socket."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        options = ["--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--enable-debug-command", "yes"]
        with ended(subprocess.Popen([program, *options], cwd=folder, stdout=subprocess.DEVNULL)) as server, socket.socket(socket.AF_UNIX) as probe:
            while probe.connect_ex(path):
                assert server.poll() is None, "the server ends"
                time.sleep(0.01)
            yield server, path


@contextlib.contextmanager
def observer(redlatch, path, depth, pattern):
    """A shadow that has read everything once."""
    if depth == "none":
        yield None
        return
    words = [redlatch, "beside", f"unix://{path}", "--by", depth, "--match", pattern]
    with ended(subprocess.Popen(words, stdout=subprocess.PIPE)) as shadow:
        while READY not in (line := shadow.stdout.readline()):
            assert line, "the observer ends"
        yield shadow


def cpu_ms(process):
    """Milliseconds that a process has computed."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def resident_mib(process):
    (line,) = [line for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def turn(options, depth):
    """Latencies in microseconds, and the share of a processor that the server takes, in percent."""
    with observed(options.server) as (server, path), observer(options.redlatch, path, depth, "load:*"):
        before, start = cpu_ms(server), time.monotonic()
        load = ["load", "--url", f"unix://{path}", "--rate", f"{options.rate}/s", "--duration", f"{options.seconds}s", "--hold", "const:1ms"]
        said = subprocess.run([options.redlatch, *load, "--format", "json"], check=True, capture_output=True, text=True).stdout
        share = (cpu_ms(server) - before) / (time.monotonic() - start) / 10
        acquire = json.loads(said)["acquire_us"]
        return acquire["p50"], acquire["p99"], share


def memory(options, depth):
    """MiB of a shadow of many keys of which a thousand are locks."""
    with observed(options.server) as (_, path):
        assert ask(path, "DEBUG", "POPULATE", str(options.keys - LOCKS), "data", "16") == b"+OK"
        for number in range(LOCKS):
            ask(path, "SET", f"lock:{number}", f"worker-{number}", "PX", "36000000")
        with observer(options.redlatch, path, depth, "lock:*") as shadow:
            return resident_mib(shadow)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="redis-server")
    parser.add_argument("--redlatch", default="target/release/redlatch")
    for name, default in {"turns": 5, "seconds": 10, "rate": 2_000, "keys": 1_000_000}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    turns = {depth: [] for depth in DEPTHS}
    for _ in range(options.turns):
        for depth in DEPTHS:
            turns[depth].append(turn(options, depth))
    print("| observer | p50 | p99 | CPU of the server | memory of the shadow |\n|---|---|---|---|---|")
    for depth, rows in turns.items():
        p50, p99, share = (statistics.median(column) for column in zip(*rows))
        size = "-" if depth == "none" else f"{memory(options, depth):.1f} MiB"
        print(f"| {depth} | {p50:.0f} us | {p99:.0f} us | {share:.1f} % | {size} |")


if __name__ == "__main__":
    main()
