"""coredis' Lock, on a client that is typed through and through and speaks RESP3."""

import anyio
import coredis
from coredis.exceptions import LockAcquisitionError, LockExtensionError, LockReleaseError
from coredis.patterns.lock import Lock

from checks import HOST, LEASE_MS, PORT, ROUNDS, WORKERS, Stopwatch, Till, check, done

LEASE = LEASE_MS / 1000


async def refused(error, call):
    try:
        await call()
    except error:
        return True
    return False


async def main():
    client = coredis.Redis(host=HOST, port=PORT, decode_responses=True)

    def lock(name, lease=10.0, **options):
        return Lock(client, name, timeout=lease, sleep=0.005, **options)

    async with client:
        await story(client, lock)
    done()


async def story(client, lock):
    first, second = lock("stock"), lock("stock", blocking_timeout=5)
    check("acquire", await first.acquire() and await client.get("stock") == first.local.get())
    check("contended acquire is refused", not await lock("stock", blocking=False).acquire())
    check("a wait that is too short is refused", not await lock("stock", blocking_timeout=0.05).acquire())
    stranger = lock("stock")
    stranger.local.set("not the holder's")
    check("extend by a non-owner is refused", await refused(LockExtensionError, lambda: stranger.extend(60)))
    check("release by a non-owner is refused", await refused(LockReleaseError, stranger.release))
    await first.extend(5)
    ttl = await client.pttl("stock")
    check("extend adds to what is left", 14_000 < ttl <= 15_000, ttl)

    served = []

    async def wait():
        async with second:
            served.append(await client.get("stock"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.sleep(0.05)
        check("contended acquire waits", not served)
        await first.release()
    check("and is served by the release", len(served) == 1 and served[0])
    check("release", not await client.exists(["stock"]) and await refused(LockReleaseError, first.release))

    watch = Stopwatch()
    lapsed, heir = lock("lease", LEASE), lock("lease", blocking_timeout=5)
    check("acquire a short lease", await lapsed.acquire())
    check("expiry hands over", await heir.acquire())
    check("not before the lease ended", watch.ms() >= LEASE_MS, watch.ms())
    check("the lapsed holder cannot release", await refused(LockReleaseError, lapsed.release))
    await heir.release()

    till = Till()

    async def work():
        for _ in range(ROUNDS):
            async with lock("race"):
                seen = till.enter()
                await anyio.sleep(0.001)
                till.leave(seen)

    async with anyio.create_task_group() as tasks:
        for _ in range(WORKERS):
            tasks.start_soon(work)
    till.check(WORKERS * ROUNDS)

    held = lock("stock")
    await held.acquire()

    async def enter():
        async with lock("stock", blocking=False):
            pass

    check("a context manager that is refused raises", await refused(LockAcquisitionError, enter))


anyio.run(main)
