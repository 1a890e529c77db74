"""django-redis: cache.lock() and the cache beside it, and the cache that python-redis-lock makes of it."""

import threading

import django
from django.conf import settings

from checks import HOST, LEASE_MS, PORT, check, done, expiry_hands_over, later, race_under, refused

URL = f"redis://{HOST}:{PORT}/0"
settings.configure(
    CACHES={
        "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": URL, "KEY_PREFIX": "shop"},
        "signalled": {
            "BACKEND": "redis_lock.django_cache.RedisCache",
            "LOCATION": URL,
            "KEY_PREFIX": "signalled",
        },
    }
)
django.setup()

from django.core.cache import cache, caches  # noqa: E402 (the settings come first)
from redis.exceptions import LockError, LockNotOwnedError  # noqa: E402
from redis_lock import NotAcquired  # noqa: E402


def lock(name, lease=10.0, **options):
    return cache.lock(name, timeout=lease, sleep=0.005, thread_local=False, **options)


first, second = lock("stock"), lock("stock")
check("acquire", first.acquire() and first.owned())
check("under the key that the cache gives it", cache.client.get_client().exists("shop:1:stock") == 1)
check("contended acquire is refused", not second.acquire(blocking=False))
check("a wait that is too short is refused", not second.acquire(blocking_timeout=0.05))
second.local.token = b"not the holder's"
check("release by a non-owner is refused", refused(LockNotOwnedError, second.release) and first.owned())
first.extend(5)
released = later(0.05, first.release)
check("contended acquire waits for the release", second.acquire(blocking_timeout=5))
released.join()
second.release()
check("release", refused(LockError, second.release))

lapsed, heir = lock("lease", LEASE_MS / 1000), lock("lease")
expiry_hands_over(lapsed.acquire, lambda: heir.acquire(blocking_timeout=5))
check("the lapsed holder cannot release", refused(LockNotOwnedError, lapsed.release) and heir.owned())
heir.release()
race_under(lambda: lock("race"))

check(
    "add takes a key once",
    cache.add("flag", "mine", timeout=30) and not cache.add("flag", "another's", timeout=30),
)
check("its value and its time", cache.get("flag") == "mine" and 20 < cache.ttl("flag") <= 30)
check(
    "set with nx", cache.set("job", 1, nx=True, timeout=30) and not cache.set("job", 2, nx=True, timeout=30)
)
check("persist and expire", cache.persist("flag") and cache.ttl("flag") is None and cache.expire("flag", 5))
cache.set_many({"one": 1, "two": {"nested": [1, 2.5, None]}}, timeout=30)
check(
    "many at once", cache.get_many(["one", "two", "three"]) == {"one": 1, "two": {"nested": [1, 2.5, None]}}
)
cache.set("count", 41)
check("a counter", cache.incr("count") == 42 and refused(ValueError, lambda: cache.incr("no counter")))
check("keys by pattern", sorted(cache.iter_keys("*o*")) == sorted(cache.keys("*o*")) != [])
check("delete by pattern", cache.delete_pattern("*") >= 5 and cache.keys("*") == [])

signalled = caches["signalled"]
made = []


def make():
    made.append(1)
    return "made once"


makers = [
    threading.Thread(target=lambda: signalled.locked_get_or_set("page", make, expire=10)) for _ in range(4)
]
for maker in makers:
    maker.start()
for maker in makers:
    maker.join()
check("locked_get_or_set makes a value once", len(made) == 1 and signalled.get("page") == "made once", made)
left = signalled.lock("stock", expire=10)
left.acquire()
signalled.reset_all()
check("reset_all frees every lock", refused(NotAcquired, left.release))
done()
