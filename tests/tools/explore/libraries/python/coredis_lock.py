"""coredis: its lock in an `async with` block."""

import os

import anyio
import coredis
from coredis.patterns.lock import Lock


async def main():
    client = coredis.Redis.from_url(os.environ["REDIS_URL"])
    async with client, Lock(client, "orders", timeout=10):
        await client.incr("paid")


anyio.run(main)
