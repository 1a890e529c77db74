"""walrus: its Lock, whose waiters sleep in BLPOP, and its two rate limits. The tokens are bytes, not text."""

import time

from walrus import Database, RateLimitException

from checks import HOST, LEASE_MS, PORT, Stopwatch, check, done, expiry_hands_over, later, race_under, refused

client = Database(host=HOST, port=PORT)

first, second = client.lock("stock", ttl=10_000), client.lock("stock", ttl=10_000)
check("acquire", first.acquire() and client.get("lock:stock") == first._lock_id)
check("it has its lease", 9_000 < client.pttl("lock:stock") <= 10_000)
check("contended acquire is refused", not second.acquire(block=False))
check("release by a non-owner is refused", not second.release())
check("the owner still holds it", client.get("lock:stock") == first._lock_id)

watch = Stopwatch()
released = later(0.1, first.release)
check("contended acquire waits for the release", second.acquire())
check("and is woken by it", 100 <= watch.ms() < 5_000, watch.ms())
released.join()
check("release", second.release() and not second.release())
check("the signal is kept for the next who waits", client.llen("lock.event:stock") == 1)
forever = client.lock("stock")
check("a lock without a lease", forever.acquire() and client.pttl("lock:stock") == -1)
forever.clear()
check("is cleared with its signal", client.exists("lock:stock", "lock.event:stock") == 0)

lapsed, heir = client.lock("lease", ttl=LEASE_MS), client.lock("lease", ttl=1_000)
expiry_hands_over(lapsed.acquire, heir.acquire)
check("the lapsed holder cannot release", not lapsed.release() and heir.release())
race_under(lambda: client.lock("race"))

for kind in [client.rate_limit, client.rate_limit_lua]:
    name = kind.__name__
    limit = kind(name, limit=3, per=1)
    check(f"{name}: lets three pass", not any(limit.limit("guest") for _ in range(3)))
    check(f"{name}: not the fourth", limit.limit("guest"))
    check(f"{name}: and somebody else", not limit.limit("another"))
    guarded = limit.rate_limited(lambda who: who)(lambda who: "served")
    served = [guarded("a caller") for _ in range(3)] == 3 * ["served"]
    check(f"{name}: decorates", served and refused(RateLimitException, lambda: guarded("a caller")))
    time.sleep(1.1)
    check(f"{name}: until the window has passed", not limit.limit("guest"))
done()
