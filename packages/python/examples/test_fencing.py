import asyncio

import pytest
import redis.asyncio
from redis.exceptions import ResponseError


@pytest.mark.redlatch(freeze=True)
async def test_a_holder_that_pauses_past_its_lease_is_stopped_by_its_fencing_token(redlatch_aio):
    class Worker:
        def __init__(self, name):
            self.client = redis.asyncio.Redis(**redlatch_aio.kwargs, client_name=name)
            self.lock = self.client.lock("stock", timeout=30)

        async def token(self):
            return await self.client.execute_command("LOCK.TOKEN", "stock", self.lock.local.token)

        async def write(self, token):
            # What the lock protects refuses a token that is lower than one it has seen.
            return await self.client.execute_command("LOCK.GUARD", "stock:file", token)

    slow, other = Worker("slow"), Worker("other")
    await redlatch_aio.faults.pause_client(60, client="slow", command="LOCK.TOKEN")
    await slow.lock.acquire()
    late = asyncio.create_task(slow.write(await slow.token()))  # it pauses here, and believes that it holds the lock

    await redlatch_aio.clock.advance(30.001)
    await other.lock.acquire(blocking=False)
    assert await other.write(await other.token()) == 1

    await redlatch_aio.clock.advance(30)  # the pause ends
    with pytest.raises(ResponseError, match="STALE"):
        await late
    for worker in (slow, other):
        await worker.client.aclose()
