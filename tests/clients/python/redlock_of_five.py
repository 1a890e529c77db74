"""Redlock over five servers: a majority is the lock, and it outlives one server that is killed."""

import os
import signal

import redis
from pottery import Redlock, ReleaseUnlockedLock

from checks import HOST, LEASE_MS, PORTS, Stopwatch, check, done, race_under, refused

PIDS = [int(pid) for pid in os.environ["REDLATCH_PIDS"].split(",")]
check("five servers", len(PORTS) == len(PIDS) == 5)
Redlock._RETRY_DELAY = 0.02

clients = [redis.Redis(host=HOST, port=port, socket_timeout=2, retry=None) for port in PORTS]


def lock(key, lease=10.0):
    return Redlock(key=key, masters=set(clients), auto_release_time=lease)


def holders(key):
    """How many of the servers that answer hold the lock."""
    return sum(client.exists(f"redlock:{key}") for client in alive)


alive = list(clients)
first, second = lock("stock"), lock("stock")
check("acquire on five", first.acquire() and first.locked() > 0)
check("the lock is on a majority", holders("stock") >= 3, holders("stock"))
check("contended acquire is refused", not second.acquire(blocking=False))
first.release()

# Three of five are enough to refuse; two are not.
for client in clients[:3]:
    client.set("redlock:taken", "another's", px=10_000)
check("a majority held by another refuses", not lock("taken").acquire(blocking=False))
clients[0].delete("redlock:taken")
check("a minority held by another does not", lock("taken").acquire(blocking=False))

check("acquire before the loss", first.acquire())
victim = len(PORTS) - 1
os.kill(PIDS[victim], signal.SIGKILL)
alive = clients[:victim]
check("the victim is gone", refused(redis.ConnectionError, clients[victim].ping))

check("the lock outlives one server", first.locked() > 0)
check("and still excludes", not second.acquire(blocking=False))
first.extend()
check("and can be extended", 9 < first.locked() <= 10, first.locked())
first.release()
# It returns when a majority has let go; the others follow.
check("and released", holders("stock") < 3, holders("stock"))
check("who released it holds nothing", refused(ReleaseUnlockedLock, first.release))

watch = Stopwatch()
lapsed = lock("lease", LEASE_MS / 1000)
check("acquire on four of five", lapsed.acquire())
check("expiry hands over", lock("lease").acquire(timeout=5))
check("not before the lease ended", watch.ms() >= LEASE_MS, watch.ms())
race_under(lambda: lock("race"))
done()
