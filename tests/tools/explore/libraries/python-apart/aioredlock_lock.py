"""aioredlock: its lock in an `async with` block."""

import asyncio
import os

import redis.asyncio
from aioredlock import Aioredlock


async def main():
    url = os.environ["REDIS_URL"]
    client = redis.asyncio.Redis.from_url(url)
    manager = Aioredlock([url])
    async with await manager.lock("orders", lock_timeout=10):
        await client.incr("paid")
    await manager.destroy()
    await client.aclose()


asyncio.run(main())
