"""python-redis-lock: a lock whose waiters sleep in BLPOP until the holder's script pushes a signal."""

import time

import redis
import redis_lock
from redis_lock import Lock, NotAcquired, NotExpirable

from checks import HOST, PORT, Stopwatch, check, done, expiry_hands_over, later, race_under, refused

client = redis.Redis(host=HOST, port=PORT)

first, second = Lock(client, "stock", expire=10), Lock(client, "stock", expire=10)
check("acquire", first.acquire() and first.locked() and first.get_owner_id() == first.id)
check("it has its lease", 0 < client.ttl("lock:stock") <= 10)
check("contended acquire is refused", not second.acquire(blocking=False))
watch = Stopwatch()
check("a wait that is too short is refused", not second.acquire(timeout=1))
check("and was as long as asked for", 1_000 <= watch.ms() < 2_500, watch.ms())
check("release by a non-owner is refused", refused(NotAcquired, second.release) and first.locked())
check("extend by a non-owner is refused", refused(NotAcquired, second.extend))
first.extend(expire=60)
ttl = client.ttl("lock:stock")
check("extend takes the lease anew", 50 < ttl <= 60, ttl)
forever = Lock(client, "without a lease")
check("a lock without a lease", forever.acquire() and client.pttl("lock:without a lease") == -1)
check("cannot be extended", refused(NotExpirable, lambda: forever.extend(expire=5)))
forever.release()

watch = Stopwatch()
released = later(0.1, first.release)
check("contended acquire waits for the release", second.acquire(timeout=8))
check("and is woken by it", 100 <= watch.ms() < 4_000, watch.ms())
released.join()
second.release()
check("release", not second.locked() and refused(NotAcquired, second.release))

third = Lock(client, "stock", expire=10)
third.acquire()
released = later(0.1, Lock(client, "stock").reset)
check("a reset by another wakes a waiter", Lock(client, "stock", expire=10).acquire(timeout=8))
released.join()
for name in ["left", "right"]:
    Lock(client, name).acquire()
redis_lock.reset_all(client)
check("reset_all frees every lock", not client.keys("lock:*"))
check("and leaves signals that lapse", 0 < client.pttl("lock-signal:left") <= 1_000)

lapsed, heir = Lock(client, "lease", expire=1), Lock(client, "lease", expire=1)
expiry_hands_over(lapsed.acquire, lambda: heir.acquire() and heir.get_owner_id() == heir.id, 1_000)
check("the lapsed holder cannot extend", refused(NotAcquired, lapsed.extend))
check("the lapsed holder cannot release", refused(NotAcquired, lapsed.release) and heir.locked())
heir.release()

# The lease is shorter than the work: only the renewals keep it.
with Lock(client, "kept", expire=1, auto_renewal=True) as kept:
    time.sleep(1.7)
    check("renewal keeps a short lease", kept.get_owner_id() == kept.id)
check("and it is released after the work", not kept.locked())
race_under(lambda: Lock(client, "race", expire=10))
done()
