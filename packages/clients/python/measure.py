#!/usr/bin/env python3
"""What a lock costs this process: acquire and release through the client, beside SET NX PX and EVALSHA by redis-py alone.

    measure.py [--pairs 5000] [--rounds 7] [--url URL]

Both in turn, over the same connection settings, one lock at a time; without a URL on a redlatch of its own (REDLATCH_BINARY, or the
test package). Prints microseconds of CPU time of this process for a pair, its threads included: the median of the rounds.
"""

import argparse
import asyncio
import contextlib
import secrets
import statistics
import time

import redis
import redis.asyncio

from redlatch_client import Locks, aio

RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


def bare(url, pairs):
    with redis.Redis.from_url(url) as client:
        digest = client.script_load(RELEASE)
        begun = time.process_time()
        for _ in range(pairs):
            owner = secrets.token_hex(16)
            assert client.set("lock:bare", owner, nx=True, px=30_000)
            assert client.evalsha(digest, 1, "lock:bare", owner) == 1
        return time.process_time() - begun


def ours(url, pairs):
    with redis.Redis.from_url(url) as client:
        locks = Locks(client)
        lock = locks.lock("lock:ours")
        begun = time.process_time()
        for _ in range(pairs):
            with lock:
                pass
        took = time.process_time() - begun
        locks.close()
        return took


async def bare_aio(url, pairs):
    async with redis.asyncio.Redis.from_url(url) as client:
        digest = await client.script_load(RELEASE)
        begun = time.process_time()
        for _ in range(pairs):
            owner = secrets.token_hex(16)
            assert await client.set("lock:bare", owner, nx=True, px=30_000)
            assert await client.evalsha(digest, 1, "lock:bare", owner) == 1
        return time.process_time() - begun


async def ours_aio(url, pairs):
    async with redis.asyncio.Redis.from_url(url) as client:
        locks = aio.Locks(client)
        lock = locks.lock("lock:ours")
        begun = time.process_time()
        for _ in range(pairs):
            async with lock:
                pass
        took = time.process_time() - begun
        await locks.aclose()
        return took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--url")
    options = parser.parse_args()
    ways = {
        "redis-py": bare,
        "redlatch_client": ours,
        "redis-py, asyncio": lambda *what: asyncio.run(bare_aio(*what)),
        "redlatch_client, asyncio": lambda *what: asyncio.run(ours_aio(*what)),
    }
    took = {name: [] for name in ways}
    with contextlib.ExitStack() as stack:
        url = options.url
        if not url:
            import redlatch

            url = stack.enter_context(redlatch.Server()).namespace().url
        for _ in range(options.rounds):
            for name, measure in ways.items():
                took[name].append(measure(url, options.pairs) / options.pairs * 1e6)
    middle = {name: statistics.median(each) for name, each in took.items()}
    for name, cost in middle.items():
        base = middle["redis-py, asyncio" if "asyncio" in name else "redis-py"]
        print(f"{name:26} {cost:6.0f} us, {cost / base:.2f} of redis-py")


if __name__ == "__main__":
    main()
