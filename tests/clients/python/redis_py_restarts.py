"""redis-py's Lock through a kill of its server, and through the quarantine after one. The server is started again."""

import os
import signal
import threading
import time

import redis
from redis.exceptions import LockNotOwnedError

from checks import HOST, PORTS, check, done, refused

PIDS = [int(pid) for pid in os.environ["REDLATCH_PIDS"].split(",")]
KEEPS, FORGETS = 0, 1
WAIT_MAX = 60


class Watcher:
    """A client of one of the servers that ends it, and looks at it."""

    def __init__(self, number):
        self.client = connect(number)
        self.pid = PIDS[number]

    def restart(self):
        """Kills the server; returns when another process answers in its place."""
        os.kill(self.pid, signal.SIGKILL)
        while self.client.info("server")["process_id"] == self.pid:
            time.sleep(0.01)

    def is_in_quarantine(self):
        return self.client.info("persistence")["quarantine_active"] == 1


class Waiter(threading.Thread):
    """Waits for a lock on a thread."""

    def __init__(self, lock):
        super().__init__(daemon=True)
        self.lock = lock
        self.is_served = None
        self.start()

    def run(self):
        self.is_served = self.lock.acquire(blocking_timeout=WAIT_MAX)


def connect(number):
    return redis.Redis(host=HOST, port=PORTS[number])


def lock(client, name, lease=60.0):
    return client.lock(name, timeout=lease, sleep=0.02, thread_local=False)


watcher = Watcher(KEEPS)
mine, theirs = (lock(connect(KEEPS), "stock") for _ in range(2))
forever = connect(KEEPS).lock("without a lease", thread_local=False)
check("acquire", mine.acquire() and forever.acquire() and not theirs.acquire(blocking=False))
fence = watcher.client.incr("stock:fence")
waiter = Waiter(theirs)
left = watcher.client.pttl("stock")
watcher.restart()
check("after a kill it is still held", not lock(connect(KEEPS), "stock").acquire(blocking=False) and mine.owned())
check("its lease has gone on", 0 < watcher.client.pttl("stock") <= left, left)
check("a fence goes on", watcher.client.incr("stock:fence") == fence + 1)
mine.extend(120, replace_ttl=True)
left = watcher.client.pttl("stock")
check("its owner extends it", left > 60_000, left)
mine.reacquire()
check("who waited before the kill still waits", waiter.is_alive())
mine.release()
waiter.join()
check("and is served by the release", waiter.is_served and theirs.owned())
theirs.release()
check("a lock without a lease is held, too", forever.owned())
forever.release()
check("both are free", watcher.client.exists("stock", "without a lease") == 0)

watcher = Watcher(FORGETS)
mine, theirs, other = (lock(connect(FORGETS), "stock", lease=4.0) for _ in range(3))
check("acquire what will be forgotten", mine.acquire() and not theirs.acquire(blocking=False))
waiter = Waiter(theirs)
watcher.restart()
fresh = lock(connect(FORGETS), "fresh")
refusals = [not other.acquire(blocking=False), not fresh.acquire(blocking=False)]
refusals += [not fresh.acquire(blocking_timeout=0.1)]
refusals += [refused(LockNotOwnedError, call) for call in (lambda: mine.extend(60), mine.reacquire, mine.release)]
left = watcher.client.info("persistence")["quarantine_left_ms"]
check("in quarantine all are refused", all(refusals) and left > 0, (refusals, left))
late = Waiter(fresh)
is_early = False
while waiter.is_alive() or late.is_alive():
    # GET tells of no key that does not exist. The quarantine is asked for after it: what is there then was granted in it.
    there = [watcher.client.get(name) for name in ("stock", "fresh")]
    is_early = is_early or (any(there) and watcher.is_in_quarantine())
    time.sleep(0.01)
check("who waits is served by itself", waiter.is_served and late.is_served)
check("but not in the quarantine", not is_early and not watcher.is_in_quarantine())
theirs.extend(10)
check("then all is as ever", theirs.owned() and not other.acquire(blocking=False))
theirs.release()
fresh.release()
check("release", watcher.client.exists("stock", "fresh") == 0)
done()
