"""redis-py's Lock, from asyncio tasks."""

import asyncio

import redis.asyncio as redis
from redis.exceptions import LockError, LockNotOwnedError

from checks import HOST, LEASE_MS, PORT, Stopwatch, check, done, race_of_tasks


async def refused(error, awaitable):
    try:
        await awaitable
    except error:
        return True
    return False


async def main():
    client = redis.Redis(host=HOST, port=PORT)
    check("ping", await client.ping())

    def lock(name, lease=10.0):
        return client.lock(name, timeout=lease, sleep=0.005)

    first, second = lock("stock"), lock("stock")
    check("acquire", await first.acquire() and await first.owned())
    check("contended acquire is refused", not await second.acquire(blocking=False))
    check("a wait that is too short is refused", not await second.acquire(blocking_timeout=0.05))
    second.local.token = b"not the holder's"
    check("release by a non-owner is refused", await refused(LockNotOwnedError, second.release()))
    check("the owner still holds it", await first.owned())

    await first.extend(5)
    ttl = await client.pttl("stock")
    check("extend adds to what is left", 14_000 < ttl <= 15_000, ttl)
    await first.reacquire()
    ttl = await client.pttl("stock")
    check("reacquire takes the lease anew", 9_000 < ttl <= 10_000, ttl)

    waiter = asyncio.create_task(lock("stock").acquire(blocking_timeout=5))
    await asyncio.sleep(0.05)
    check("contended acquire waits", not waiter.done())
    await first.release()
    check("and is served by the release", await waiter)
    check("a second release is refused", await refused(LockError, first.release()))

    watch = Stopwatch()
    lapsed, heir = lock("lease", LEASE_MS / 1000), lock("lease")
    check("acquire a short lease", await lapsed.acquire())
    check("expiry hands over", await heir.acquire(blocking_timeout=5))
    check("not before the lease ended", watch.ms() >= LEASE_MS, watch.ms())
    check("the lapsed holder cannot release", await refused(LockNotOwnedError, lapsed.release()))
    await heir.release()

    await race_of_tasks(lambda: lock("race"))
    await client.aclose()
    done()


asyncio.run(main())
