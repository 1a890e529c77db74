"""aioredlock: scripts loaded when it connects, error replies made by scripts, automatic extension."""

import asyncio

import redis.asyncio
from aioredlock import Aioredlock, Lock, LockError

from checks import HOST, LEASE_MS, PORT, ROUNDS, WORKERS, Stopwatch, Till, check, done

SERVERS = [{"host": HOST, "port": PORT}]
LEASE = LEASE_MS / 1000


async def refused(awaitable):
    try:
        await awaitable
    except LockError:
        return True
    return False


async def main():
    client = redis.asyncio.Redis(host=HOST, port=PORT)
    hasty = Aioredlock(SERVERS, retry_count=1)
    patient = Aioredlock(SERVERS, retry_count=2_000, retry_delay_min=0.005, retry_delay_max=0.01)

    first = await hasty.lock("stock", lock_timeout=10)
    check("acquire", first.valid and await client.get("stock") == first.id.encode())
    check("it is seen", await hasty.is_locked("stock") and await hasty.get_active_locks() == [first])
    check("contended acquire is refused", await refused(hasty.lock("stock", lock_timeout=10)))
    check(
        "release by a non-owner is refused",
        await refused(hasty.unlock(Lock(hasty, "stock", "another's", 10, True))),
    )
    check(
        "extend by a non-owner is refused",
        await refused(hasty.extend(Lock(hasty, "stock", "another's", 10, True))),
    )
    check("the owner still holds it", await client.get("stock") == first.id.encode())
    await hasty.extend(first, 20)
    ttl = await client.pttl("stock")
    check("extend takes the lease anew", 19_000 < ttl <= 20_000, ttl)
    known = await hasty.get_lock("stock", first.id)
    check("a lock is made again from its token", 18 < known.lock_timeout <= 20, known.lock_timeout)
    check("but not from another's", await refused(hasty.get_lock("stock", "another's")))

    waiter = asyncio.create_task(patient.lock("stock", lock_timeout=10))
    await asyncio.sleep(0.05)
    check("contended acquire waits", not waiter.done())
    await hasty.unlock(first)
    second = await waiter
    check("and is served by the release", await client.get("stock") == second.id.encode())
    check("a second release is refused", await refused(hasty.unlock(first)))
    await patient.unlock(second)
    check("release", not await hasty.is_locked("stock"))

    watch = Stopwatch()
    lapsed = await hasty.lock("lease", lock_timeout=LEASE)
    heir = await patient.lock("lease", lock_timeout=10)
    check("expiry hands over, not before the lease ended", watch.ms() >= LEASE_MS, watch.ms())
    check("the lapsed holder cannot release", await refused(hasty.unlock(lapsed)))
    await heir.release()

    # Without a lease of its own a lock is extended for as long as it is held.
    keeper = Aioredlock(SERVERS, internal_lock_timeout=LEASE)
    async with await keeper.lock("kept") as kept:
        await asyncio.sleep(2 * LEASE)
        check("automatic extension keeps a short lease", await client.get("kept") == kept.id.encode())
    check("and it is released after the work", await client.exists("kept") == 0)

    # Its scripts are loaded once: it must notice that they are gone.
    await client.script_flush()
    again = await hasty.lock("stock", lock_timeout=10)
    check("scripts that were flushed are loaded again", await client.get("stock") == again.id.encode())

    till = Till()

    async def work():
        for _ in range(ROUNDS):
            async with await patient.lock("race", lock_timeout=10):
                seen = till.enter()
                await asyncio.sleep(0.001)
                till.leave(seen)

    await asyncio.gather(*(work() for _ in range(WORKERS)))
    till.check(WORKERS * ROUNDS)
    for manager in [hasty, patient, keeper]:
        await manager.destroy()
    check("destroy releases what is held", await client.exists("stock") == 0)
    await client.aclose()
    done()


asyncio.run(main())
