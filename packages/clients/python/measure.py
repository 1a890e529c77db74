#!/usr/bin/env python3
"""What a lock costs this process: acquire and release through the client, beside SET NX PX and EVALSHA by redis-py alone.

    measure.py [--pairs 100] [--rounds 201] [--url URL]

In turns of so many pairs, one way after the other, so that the moods of a machine reach all of them alike; one lock at a time; without a
URL on a redlatch of its own (REDLATCH_BINARY, or the test package). Prints microseconds of CPU time of this process for a pair, its
threads included: the median of the turns.
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


def bare(url, stack):
    client = stack.enter_context(redis.Redis.from_url(url))
    digest = client.script_load(RELEASE)

    def pairs(count):
        for _ in range(count):
            owner = secrets.token_hex(16)
            assert client.set("lock:bare", owner, nx=True, px=30_000)
            assert client.evalsha(digest, 1, "lock:bare", owner) == 1

    return pairs


def ours(url, stack):
    locks = Locks(stack.enter_context(redis.Redis.from_url(url)))
    stack.callback(locks.close)
    lock = locks.lock("lock:ours")

    def pairs(count):
        for _ in range(count):
            with lock:
                pass

    return pairs


def bare_aio(url, stack):
    loop, client = connected_aio(url, stack)
    digest = loop.run_until_complete(client.script_load(RELEASE))

    async def pairs(count):
        for _ in range(count):
            owner = secrets.token_hex(16)
            assert await client.set("lock:bare", owner, nx=True, px=30_000)
            assert await client.evalsha(digest, 1, "lock:bare", owner) == 1

    return lambda count: loop.run_until_complete(pairs(count))


def ours_aio(url, stack):
    loop, client = connected_aio(url, stack)
    locks = aio.Locks(client)
    stack.callback(lambda: loop.run_until_complete(locks.aclose()))
    lock = locks.lock("lock:ours")

    async def pairs(count):
        for _ in range(count):
            async with lock:
                pass

    return lambda count: loop.run_until_complete(pairs(count))


def connected_aio(url, stack):
    loop = stack.enter_context(contextlib.closing(asyncio.new_event_loop()))
    client = redis.asyncio.Redis.from_url(url)
    stack.callback(lambda: loop.run_until_complete(client.aclose()))
    return loop, client


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=201)
    parser.add_argument("--url")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        url = options.url
        if not url:
            import redlatch

            url = stack.enter_context(redlatch.Server()).namespace().url
        ways = {
            "redis-py": bare(url, stack),
            "redlatch_client": ours(url, stack),
            "redis-py, asyncio": bare_aio(url, stack),
            "redlatch_client, asyncio": ours_aio(url, stack),
        }
        took = {name: [] for name in ways}
        for _ in range(options.rounds):
            for name, pairs in ways.items():
                begun = time.process_time()
                pairs(options.pairs)
                took[name].append((time.process_time() - begun) / options.pairs * 1e6)
    middle = {name: statistics.median(each) for name, each in took.items()}
    for name, cost in middle.items():
        base = middle["redis-py, asyncio" if "asyncio" in name else "redis-py"]
        print(f"{name:26} {cost:6.0f} us, {cost / base:.2f} of redis-py")


if __name__ == "__main__":
    main()
