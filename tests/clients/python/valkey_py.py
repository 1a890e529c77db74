"""valkey-py's Lock, from threads and from asyncio tasks: redis-py's scripts, SET with PX before NX, RESP2."""

import asyncio

import valkey
import valkey.asyncio
from valkey.exceptions import LockError, LockNotOwnedError

from checks import HOST, LEASE_MS, PORT, check, done, expiry_hands_over, later, race_of_tasks, race_under, refused

client = valkey.Valkey(host=HOST, port=PORT)


def lock(name, lease=10.0):
    return client.lock(name, timeout=lease, sleep=0.005, thread_local=False)


first, second = lock("stock"), lock("stock")
check("acquire", first.acquire() and first.locked() and first.owned())
check("contended acquire is refused", not second.acquire(blocking=False))
check("a wait that is too short is refused", not second.acquire(blocking_timeout=0.05))
second.local.token = b"not the holder's"
check("release by a non-owner is refused", refused(LockNotOwnedError, second.release) and first.owned())
second.local.token = b"not the holder's"
check("extend by a non-owner is refused", refused(LockNotOwnedError, lambda: second.extend(60)))
first.extend(5)
ttl = client.pttl("stock")
check("extend adds to what is left", 14_000 < ttl <= 15_000, ttl)
first.reacquire()
ttl = client.pttl("stock")
check("reacquire takes the lease anew", 9_000 < ttl <= 10_000, ttl)
released = later(0.05, first.release)
check("contended acquire waits for the release", second.acquire(blocking_timeout=5))
released.join()
second.release()
check("release", client.exists("stock") == 0 and refused(LockError, second.release))

lapsed, heir = lock("lease", LEASE_MS / 1000), lock("lease")
expiry_hands_over(lapsed.acquire, lambda: heir.acquire(blocking_timeout=5))
check("the lapsed holder cannot release", refused(LockNotOwnedError, lapsed.release) and heir.owned())
heir.release()
race_under(lambda: lock("race"))


async def tasks():
    """The same classes for asyncio."""
    client = valkey.asyncio.Valkey(host=HOST, port=PORT)

    def lock(name, **options):
        return client.lock(name, timeout=10, sleep=0.005, **options)

    held, other = lock("stock"), lock("stock", blocking=False)
    check("asyncio: acquire", await held.acquire() and await held.owned())
    check("asyncio: contended acquire is refused", not await other.acquire())
    await held.extend(20, replace_ttl=True)
    ttl = await client.pttl("stock")
    check("asyncio: extend", 19_000 < ttl <= 20_000, ttl)
    waiter = asyncio.create_task(lock("stock").acquire(blocking_timeout=5))
    await asyncio.sleep(0.05)
    check("asyncio: contended acquire waits", not waiter.done())
    await held.release()
    check("asyncio: and is served by the release", await waiter)

    await race_of_tasks(lambda: lock("race"))
    await client.aclose()


asyncio.run(tasks())
done()
