"""redis-py's Lock, from threads."""

import threading

import redis
from redis.exceptions import LockError, LockNotOwnedError

from checks import HOST, LEASE_MS, PORT, check, done, expiry_hands_over, race, refused

client = redis.Redis(host=HOST, port=PORT)
check("ping", client.ping())
LEASE = LEASE_MS / 1000


def lock(name, lease=10.0, **options):
    return client.lock(name, timeout=lease, sleep=0.005, thread_local=False, **options)


first, second = lock("stock"), lock("stock")
check("acquire", first.acquire() and first.locked() and first.owned())
check("contended acquire is refused", not second.acquire(blocking=False) and not second.owned())
check("a wait that is too short is refused", not second.acquire(blocking_timeout=0.05))

third = lock("stock")
third.local.token = b"not the holder's"
check("release by a non-owner is refused", refused(LockNotOwnedError, third.release) and first.owned())
third.local.token = b"not the holder's"
check("extend by a non-owner is refused", refused(LockNotOwnedError, lambda: third.extend(60)))

first.extend(5)
ttl = client.pttl("stock")
check("extend adds to what is left", 14_000 < ttl <= 15_000, ttl)
first.extend(20, replace_ttl=True)
ttl = client.pttl("stock")
check("extend replaces the lease", 19_000 < ttl <= 20_000, ttl)
first.reacquire()
ttl = client.pttl("stock")
check("reacquire takes the lease anew", 9_000 < ttl <= 10_000, ttl)

timer = threading.Timer(0.05, first.release)
timer.start()
check("contended acquire waits for the release", second.acquire(blocking_timeout=5))
timer.join()
second.release()
check("release", not second.locked() and client.exists("stock") == 0)
check("a second release is refused", refused(LockError, second.release))

lapsed, heir = lock("lease", LEASE), lock("lease")
expiry_hands_over(lapsed.acquire, lambda: heir.acquire(blocking_timeout=5))
check("the lapsed holder cannot extend", refused(LockNotOwnedError, lambda: lapsed.extend(60)))
check("the lapsed holder cannot reacquire", refused(LockNotOwnedError, lapsed.reacquire))
check("the lapsed holder cannot release", refused(LockNotOwnedError, lapsed.release) and heir.owned())
heir.release()

with client.lock("as a context", timeout=5) as held:
    check("a context manager holds the lock", held.owned())
check("and releases it", client.exists("as a context") == 0)

forever = client.lock("without a lease")
check("a lock without a lease", forever.acquire() and client.pttl("without a lease") == -1)
check("cannot be extended", refused(LockError, lambda: forever.extend(10)))
forever.release()

with client.pipeline() as pipe:
    piped = pipe.lock("in a transaction", timeout=5, thread_local=False)
    piped.local.token = b"token"
    client.set("in a transaction", b"token", nx=True, px=5_000)
    pipe.incr("in a transaction:fence")
    piped.lua_release(keys=["in a transaction"], args=[b"token"], client=pipe)
    check("release inside MULTI", pipe.execute() == [1, 1] and client.exists("in a transaction") == 0)

with client.pipeline() as pipe, client.lock("watched", timeout=10) as held:
    pipe.watch("watched")
    is_mine = pipe.get("watched") == held.local.token
    pipe.multi()
    pipe.set("guarded", "written while it was mine").ttl("watched")
    check("WATCH of a lock that stays", is_mine and pipe.execute()[0] is True)
    pipe.watch("watched")
    client.pexpire("watched", 1)
    pipe.multi()
    pipe.set("guarded", "written when it was not")
    # Time alone does not touch a key: the renewal above did.
    check("WATCH of a lock that was touched", refused(redis.WatchError, pipe.execute))
    client.set("watched", held.local.token)

fences = []


def round_of(critical):
    with lock("race"):
        fences.append(client.incr("race:fence"))
        critical()


race(round_of)
check("fences only grow", fences == sorted(set(fences)) and len(fences) == fences[-1], fences)
done()
