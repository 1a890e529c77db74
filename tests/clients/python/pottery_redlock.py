"""pottery's Redlock on one server: acquire, extend, ask what is left, release. With the argument `cluster`: in cluster mode."""

import sys
import threading

import redis
from pottery import ExtendUnlockedLock, Redlock, ReleaseUnlockedLock

from checks import HOST, LEASE_MS, PORT, check, done, expiry_hands_over, race_under, refused

connect = redis.RedisCluster if sys.argv[1:] == ["cluster"] else redis.Redis
client = connect(host=HOST, port=PORT)
Redlock._RETRY_DELAY = 0.02


def lock(key, lease=10.0):
    return Redlock(key=key, masters={client}, auto_release_time=lease)


first, second = lock("stock"), lock("stock")
check("acquire", first.acquire() and 9 < first.locked() <= 10)
check("contended acquire is refused", not second.acquire(blocking=False))
check("a wait that is too short is refused", not second.acquire(timeout=0.05))
check("who does not hold it sees nothing left", second.locked() == 0)
check("release by a non-owner is refused", refused(ReleaseUnlockedLock, second.release))
check("extend by a non-owner is refused", refused(ExtendUnlockedLock, second.extend))
check("the owner still holds it", first.locked() > 0)

client.pexpire("redlock:stock", 1_000)
first.extend()
check("extend takes the lease anew", 9 < first.locked() <= 10, first.locked())

timer = threading.Timer(0.05, first.release)
timer.start()
check("contended acquire waits for the release", second.acquire(timeout=5))
timer.join()
second.release()
check("release", client.exists("redlock:stock") == 0)

lapsed, heir = lock("lease", LEASE_MS / 1000), lock("lease")
expiry_hands_over(lapsed.acquire, lambda: heir.acquire(timeout=5))
check("the lapsed holder cannot release", refused(ReleaseUnlockedLock, lapsed.release) and heir.locked() > 0)
heir.release()
race_under(lambda: lock("race"))
done()
