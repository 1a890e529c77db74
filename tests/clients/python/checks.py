"""What every Python client here shares: where the server is, how a check reports, a race of workers."""

import asyncio
import os
import sys
import threading
import time
import traceback

HOST = os.environ["REDLATCH_HOST"]
PORT = int(os.environ["REDLATCH_PORT"])
PORTS = [int(port) for port in os.environ.get("REDLATCH_PORTS", str(PORT)).split(",")]

LEASE_MS = 200
WORKERS = 4
ROUNDS = 15


def check(name, truth, detail=""):
    """Prints `ok <name>`, or ends the program with what was seen."""
    if not truth:
        sys.exit(f"FAILED {name}: {detail or 'not so'}")
    print(f"ok {name}", flush=True)


def refused(error, call):
    """True if `call` raises `error`."""
    try:
        call()
    except error:
        return True
    return False


def later(seconds, call):
    """A thread that makes `call` after so many seconds; join it before what it changed is looked at."""
    timer = threading.Timer(seconds, call)
    timer.start()
    return timer


class Till:
    """A counter that loses updates, and says so, unless its users exclude each other."""

    def __init__(self):
        self.count = 0
        self.inside = 0
        self.overlaps = 0

    def enter(self):
        """The first half of an update; returns what `leave` needs."""
        self.inside += 1
        if self.inside > 1:
            self.overlaps += 1
        return self.count

    def leave(self, seen):
        """The second half."""
        self.count = seen + 1
        self.inside -= 1

    def check(self, updates):
        check("workers never overlap", self.overlaps == 0, f"{self.overlaps} overlaps")
        check("no update is lost", self.count == updates, f"{self.count} of {updates}")


def race(round_of):
    """In WORKERS threads, ROUNDS times: `round_of(critical)`, which must call `critical()` under the lock."""
    till = Till()

    def critical():
        seen = till.enter()
        time.sleep(0.001)
        till.leave(seen)

    def work():
        try:
            for _ in range(ROUNDS):
                round_of(critical)
        except BaseException:
            traceback.print_exc()

    threads = [threading.Thread(target=work) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    till.check(WORKERS * ROUNDS)


def race_under(lock):
    """A `race` in which `lock()` is a context manager that holds the lock."""

    def round_of(critical):
        with lock():
            critical()

    race(round_of)


async def race_of_tasks(lock):
    """In WORKERS tasks, ROUNDS times, under what `lock()` returns: an asynchronous context manager."""
    till = Till()

    async def work():
        for _ in range(ROUNDS):
            async with lock():
                seen = till.enter()
                await asyncio.sleep(0.001)
                till.leave(seen)

    await asyncio.gather(*(work() for _ in range(WORKERS)))
    till.check(WORKERS * ROUNDS)


def expiry_hands_over(acquire, wait, lease_ms=LEASE_MS):
    """One client acquires by `acquire`, and does not release; another one waits by `wait`. Both are true if they hold it."""
    watch = Stopwatch()
    check("acquire a short lease", acquire())
    check("expiry hands over", wait())
    check("not before the lease ended", watch.ms() >= lease_ms, watch.ms())


class Stopwatch:
    """Milliseconds since it was made."""

    def __init__(self):
        self.start = time.monotonic()

    def ms(self):
        return (time.monotonic() - self.start) * 1000


def done():
    """The last line of a client that got through."""
    print("done", flush=True)
