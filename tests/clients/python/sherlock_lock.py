"""sherlock's RedisLock: SETNX and EXPIRE in one script, renewal, a lease of whole seconds."""

import redis
from sherlock import LockException, LockTimeoutException, RedisLock

from checks import HOST, PORT, check, done, expiry_hands_over, later, race_under, refused

client = redis.Redis(host=HOST, port=PORT)


def lock(name, **options):
    return RedisLock(name, client=client, **{"expire": 10, "timeout": 5, "retry_interval": 0.01, **options})


first, second = lock("stock"), lock("stock")
check("acquire", first.acquire() and first.locked() and 0 < client.ttl("stock") <= 10)
check("contended acquire is refused", not second.acquire(blocking=False))
check(
    "a wait that is too short is refused", refused(LockTimeoutException, lock("stock", timeout=0.05).acquire)
)
check("release by a non-owner is refused", refused(LockException, second.release))
second._owner = "not the holder's"
check("release with another's token is refused", refused(LockException, second.release) and first.locked())
check("renewal with another's token is refused", not second.renew())
client.expire("stock", 2)
check("renewal takes the lease anew", first.renew() and client.ttl("stock") > 5)

released = later(0.05, first.release)
check("contended acquire waits for the release", second.acquire())
released.join()
second.release()
check("release", not second.locked() and refused(LockException, second.release))

spaced = lock("stock", namespace="shop")
check(
    "a namespace is another lock", first.acquire() and spaced.acquire() and client.exists("shop_stock") == 1
)
spaced.release()
first.release()

lapsed, heir = lock("lease", expire=1), lock("lease")
expiry_hands_over(lapsed.acquire, heir.acquire, 1_000)
check("the lapsed holder cannot renew", not lapsed.renew())
check("the lapsed holder cannot release", refused(LockException, lapsed.release) and heir.locked())
heir.release()
# Or it tries once more when the interpreter ends.
lapsed._owner = None
race_under(lambda: lock("race"))
done()
