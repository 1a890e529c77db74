"""aioredlock and the client of redis-py for asyncio."""

import asyncio

import pytest
import redis.asyncio
from aioredlock import Aioredlock, LockError
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from redlatch.aio import AsyncServer


@pytest.fixture
def managers(redlatch):
    """Two managers with a connection each, which do not wait before they try again."""
    made = [
        Aioredlock([redlatch.kwargs], retry_count=1, retry_delay_min=0.001, retry_delay_max=0.001) for _ in range(2)
    ]
    yield made


@pytest.mark.redlatch(freeze=True)
async def test_a_lease_that_ends_lets_the_next_one_in(redlatch_aio, managers):
    first, second = managers
    lock = await first.lock("stock", lock_timeout=30)
    with pytest.raises(LockError):
        await second.lock("stock", lock_timeout=30)
    await redlatch_aio.clock.advance(30.001)
    assert await second.is_locked(await second.lock("stock", lock_timeout=30))
    with pytest.raises(LockError):
        await first.extend(lock)
    for manager in managers:
        await manager.destroy()


@pytest.mark.redlatch(freeze=True)
async def test_an_extension_starts_the_lease_anew(redlatch_aio, managers):
    first, second = managers
    lock = await first.lock("stock", lock_timeout=30)
    await redlatch_aio.clock.advance(20)
    await first.extend(lock)
    await redlatch_aio.clock.advance(20)
    assert await first.is_locked(lock)
    with pytest.raises(LockError):
        await second.lock("stock", lock_timeout=30)
    for manager in managers:
        await manager.destroy()


async def test_a_reply_is_lost(redlatch_aio):
    async with redis.asyncio.Redis(**redlatch_aio.kwargs, retry=Retry(NoBackoff(), 0)) as client:
        async with await redlatch_aio.faults.drop_reply(command="SET", key="lock:*") as fault:
            with pytest.raises(redis.asyncio.ConnectionError):
                await client.set("lock:stock", "worker-1", nx=True, px=30_000)
            assert await fault.hits() == 1
        assert await client.get("lock:stock") == b"worker-1"


@pytest.mark.redlatch(freeze=True)
async def test_a_wait_ends_while_the_loop_goes_on(redlatch_aio):
    async with redis.asyncio.Redis(**redlatch_aio.kwargs, socket_timeout=None) as client:
        waiting = asyncio.create_task(client.blpop("jobs", 3600))
        while not (await redlatch_aio.clock.show())["deadlines"]:
            pass
        await redlatch_aio.clock.advance(3600)
        assert await waiting is None


async def test_a_server_of_asyncio():
    async with AsyncServer(nodes=2) as server:
        async with await server.namespace("orders") as orders:
            await orders.clock.freeze()
            assert len(orders.nodes) == 2 and [node["state"] for node in await orders.nodes.list()] == ["up", "up"]
            assert [space["name"] for space in await server.namespaces() if space["name"] != "default"] == ["orders"]
        assert "orders" not in [space["name"] for space in await server.namespaces()]
