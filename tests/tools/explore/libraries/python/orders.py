"""A service that ships two orders, each under a lock. Without an argument it is right; else it has that bug."""

import contextlib
import os
import sys
import time
import uuid

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

LEASE_MS = 30_000
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
EXTEND = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"
BUG = sys.argv[1] if len(sys.argv) > 1 else None
client = redis.Redis.from_url(os.environ["REDIS_URL"], retry=Retry(NoBackoff(), 0))


class Lost(Exception):
    """The lock was lost while the order was shipped."""


def take(key, owner):
    try:
        if not client.set(key, owner, nx=True, px=LEASE_MS):
            raise RuntimeError("somebody else ships it")
    except redis.ConnectionError:
        # It may have been granted.
        if BUG != "forgets":
            give_back(key, owner)
        raise


def give_back(key, owner):
    """Asks until a server answers: it may be about to restart."""
    for _ in range(1000):
        with contextlib.suppress(redis.ConnectionError):
            return client.eval(RELEASE, 1, key, owner)
        time.sleep(0.005)
    raise TimeoutError("the server stays away")


def release(key, owner):
    if BUG == "deletes":
        return client.delete(key)
    if BUG == "looks":
        return client.get(key) == owner.encode() and client.delete(key)
    return client.eval(RELEASE, 1, key, owner)


def ship(order):
    key, owner = f"lock:order:{order}", uuid.uuid4().hex
    take(key, owner)
    try:
        end = client.time()[0] + LEASE_MS // 1000
        client.incr("shipped")
        extended = client.eval(EXTEND, 1, key, owner, LEASE_MS)
        if BUG == "wall-clock" and client.time()[0] > end or not extended and BUG != "ignores":
            raise Lost
    except (redis.ConnectionError, Lost):
        give_back(key, owner)
        raise
    if not release(key, owner) and BUG != "ignores":
        raise Lost


for order in (1, 2):
    ship(order)
