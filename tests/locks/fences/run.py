#!/usr/bin/env python3
"""Writers that are stopped beyond their lease, and databases that check fencing tokens: counts stale writes.

    run.py --redlatch PROGRAM [--rounds N] [--only TITLE]

In each round a writer takes a lock with a lease of LEASE_MS and stops itself (SIGSTOP) somewhere in its transaction. When the lease
has ended, a rival takes the lock, and writes; if a row that the first one has locked makes it wait, the first one goes on before that.
Then the first one goes on. A write of it that comes after the rival's is stale. Each writer reads a count and writes one more, so a
count that is lower than the number of writes is lost work. All of it runs with the fence of `redlatch fence sql`, and without, where
stale writes must be found: otherwise nothing would be shown.

The exit status is 1 if a stale write passes the fence, or none is found without it.
"""

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import redis

import databases
import examples
import refusals
from databases import LOCK, Blocked, Stale

LEASE_MS = 10
# Longer than a round takes.
RIVAL_LEASE_MS = 60_000
# Where the first writer stops: after it has taken the lock, begun, told its token, read, or written.
STOPS = ["taken", "begun", "fenced", "read", "written"]


class Writer:
    """What a writer's process does: it reads a line of JSON for each transaction, and answers with one."""

    def __init__(self, kind, address, has_fence, redlatch):
        self._database = kind(address)
        self._has_fence = has_fence
        self._locks = redis.Redis(unix_socket_path=redlatch, protocol=3)
        self._stop = None

    def serve(self):
        for line in sys.stdin:
            print(json.dumps(self._writes(**json.loads(line))), flush=True)

    def _writes(self, owner, lease, token=None, stop=None, is_patient=True):
        """Takes the lock unless it has a token, and writes in a transaction; returns what came of it, and the token."""
        self._stop = stop
        if token is None:
            grant = self._locks.execute_command("LOCK.ACQUIRE", LOCK, owner, "LEASE", lease, "WAIT", 10_000)
            token = grant[b"token"]
            self._passes("taken")
        try:
            outcome = self._transaction(token, is_patient)
        except Blocked:
            self._database.end("ROLLBACK")
            return ["blocked", token]
        except Stale:
            self._database.end("ROLLBACK")
            outcome = "refused"
        self._locks.execute_command("LOCK.RELEASE", LOCK, owner)
        return [outcome, token]

    def _transaction(self, token, is_patient):
        ask = self._database.ask
        self._database.begin(is_patient)
        self._passes("begun")
        if self._has_fence:
            ask(self._database.FENCE, (LOCK, token))
        self._passes("fenced")
        [count] = ask("SELECT count FROM stock")
        self._passes("read")
        ask("UPDATE stock SET count = %s, token = %s", (count + 1, token))
        self._passes("written")
        self._database.end("COMMIT")
        return "written"

    def _passes(self, place):
        if place == self._stop:
            os.kill(os.getpid(), signal.SIGSTOP)


class Process:
    """A writer's process."""

    def __init__(self, *arguments):
        words = [sys.executable, __file__, "--writer", *arguments]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begins(self, **what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a writer ended with {self.process.wait()}")
        return json.loads(line)

    def asked(self, **what):
        self.begins(**what)
        return self.answer()

    def awaits_stop(self):
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise RuntimeError(f"a writer ended with {status}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def rounds(first, second, database, count):
    """Plays the rounds; returns how many there were of each outcome."""
    seen = {"stale": 0, "refused": 0, "waited": 0, "written": 0, "lost": 0}
    for stop in itertools.islice(itertools.cycle(STOPS), count):
        first.begins(owner="first", lease=LEASE_MS, stop=stop)
        first.awaits_stop()
        rival = {"owner": "second", "lease": RIVAL_LEASE_MS}
        outcome, token = second.asked(**rival, is_patient=False)
        first.process.send_signal(signal.SIGCONT)
        if outcome == "blocked":
            seen["waited"] += 1
            former, _ = first.answer()
            outcome, _ = second.asked(**rival, token=token)
        else:
            former, _ = first.answer()
        if outcome != "written":
            raise RuntimeError(f"the rival's write is {outcome}")
        seen["refused"] += former == "refused"
        seen["written"] += 1 + (former == "written")
        [newest] = database.ask("SELECT token FROM stock")
        seen["stale"] += newest != token
    [kept] = database.ask("SELECT count FROM stock")
    seen["lost"] = seen["written"] - kept
    return seen


def played(kind, address, redlatch, fence, count):
    """Plays with the fence, or without."""
    kind.install(address, f"DROP TABLE IF EXISTS stock; {kind.TABLE};")
    writer = (kind.TITLE, address, fence, redlatch)
    with Process(*writer) as first, Process(*writer) as second:
        return rounds(first, second, kind(address), count)


@contextlib.contextmanager
def lock_server(program, folder):
    """A redlatch that is reached by the socket whose path this gives."""
    socket = folder / "redlatch"
    words = [program, "--port", "0", "--unixsocket", str(socket)]
    with databases.server(words, folder, socket.exists):
        yield str(socket)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redlatch", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--only")
    parser.add_argument("--writer", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    kinds = {kind.TITLE: kind for kind in databases.ALL if options.only in (None, kind.TITLE)}
    if options.writer:
        title, address, fence, redlatch = options.writer
        return Writer(kinds[title], address, fence == "fence", redlatch).serve()
    print("| database | with the fence: stale, refused, waited | without: stale, lost |")
    print("|---|---|---|")
    failures = []
    with tempfile.TemporaryDirectory() as name, lock_server(options.redlatch, pathlib.Path(name)) as redlatch:
        # The users of the databases pass through it.
        pathlib.Path(name).chmod(0o755)
        for number, (title, kind) in enumerate(kinds.items()):
            with kind.started(pathlib.Path(name) / str(number)) as address:
                bare = played(kind, address, redlatch, "none", options.rounds)
                sql = databases.run([options.redlatch, "fence", "sql", kind.KIND])
                kind.install(address, sql)
                fenced = played(kind, address, redlatch, "fence", options.rounds)
                refusals.check(kind, address, sql)
            counts = [fenced["stale"], fenced["refused"], fenced["waited"]], [bare["stale"], bare["lost"]]
            print(f"| {title} | {' | '.join(', '.join(map(str, some)) for some in counts)} |", flush=True)
            failures += [f"{title}: {fenced} with the fence"] if fenced["stale"] or fenced["lost"] else []
            failures += [f"{title}: no stale write without the fence"] if not bare["stale"] else []
            failures += [f"{title}: no stale write is refused"] if not fenced["refused"] else []
        if options.only is None:
            examples.check(options.redlatch, redlatch, pathlib.Path(name) / "examples")
    for failure in failures:
        print(failure, file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
