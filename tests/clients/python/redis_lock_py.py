"""redis-lock-py: a lock whose waiters subscribe and whose release publishes; its spin lock; asyncio."""

import asyncio

import redis
import redis.asyncio
import redis_lock.asyncio
from redis_lock import RedisLock, RedisSpinLock
from redis_lock.exceptions import ExtendFailedError, LockNotOwnedError

from checks import HOST, PORT, Stopwatch, check, done, later, race_of_tasks, race_under, refused

client = redis.Redis(host=HOST, port=PORT)


def ownership(kind):
    """What the two classes have in common: their tokens and their leases of whole seconds."""
    name = kind.__name__

    def lock(key, lease=10):
        return kind(client, key, blocking_timeout=5, expire_timeout=lease)

    first, second = lock("stock"), lock("stock")
    check(f"{name}: acquire", first.acquire() and client.get("stock") == first.token)
    hasty = kind(client, "stock", blocking_timeout=0.05)
    check(f"{name}: a wait that is too short is refused", not hasty.acquire())
    check(f"{name}: release by a non-owner is refused", refused(LockNotOwnedError, second.release))
    check(f"{name}: extend by a non-owner is refused", refused(ExtendFailedError, lambda: second.extend(60)))
    first.extend(20)
    ttl = client.ttl("stock")
    check(f"{name}: extend adds to what is left", 20 < ttl <= 30, ttl)
    watch = Stopwatch()
    released = later(0.1, first.release)
    check(f"{name}: contended acquire waits for the release", second.acquire())
    check(f"{name}: and not for its time to end", 100 <= watch.ms() < 3_000, watch.ms())
    released.join()
    second.release()
    check(f"{name}: release", client.exists("stock") == 0)

    watch = Stopwatch()
    lapsed, heir = lock("lease", 1), lock("lease")
    check(f"{name}: acquire a short lease", lapsed.acquire())
    check(f"{name}: expiry hands over", heir.acquire())
    check(f"{name}: not before the lease ended", watch.ms() >= 1_000, watch.ms())
    check(f"{name}: the lapsed holder cannot release", refused(LockNotOwnedError, lapsed.release))
    heir.release()
    listeners = dict(client.pubsub_numsub("rlock-channel:stock"))
    check(f"{name}: no subscription is left", listeners == {b"rlock-channel:stock": 0}, listeners)

    race_under(lambda: lock("race"))


async def tasks():
    """The lock for asyncio, over a pool of its own."""
    client = redis.asyncio.Redis(host=HOST, port=PORT)

    def lock(key):
        return redis_lock.asyncio.RedisLock(client, key, blocking_timeout=10, expire_timeout=10)

    first, second = lock("stock"), lock("stock")
    check("asyncio: acquire", await first.acquire())
    waiter = asyncio.create_task(second.acquire())
    # It waits once it has subscribed.
    while dict(await client.pubsub_numsub("rlock-channel:stock")) != {b"rlock-channel:stock": 1}:
        await asyncio.sleep(0.01)
    check("asyncio: contended acquire waits", not waiter.done())
    await first.release()
    check("asyncio: and is woken by the release", await waiter)
    await second.release()

    await race_of_tasks(lambda: lock("race"))
    await client.aclose()


ownership(RedisLock)
ownership(RedisSpinLock)
asyncio.run(tasks())
done()
