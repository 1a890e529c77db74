"""One process of several leads, as long as its connection lasts. What it does is cancelled when it leads no more."""

import math

import redis.asyncio

from redlatch_client import LockLost
from redlatch_client.aio import Locks


async def lead_forever(client: redis.asyncio.Redis, work) -> None:
    locks = Locks(client)
    while True:
        leading = locks.lock("lock:leader", session=True, delay=2, wait=math.inf)
        try:
            async with leading.cancelling() as held:
                await work(held.token)
        except LockLost as lost:
            print(lost)
