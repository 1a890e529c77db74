"""redis-lock-py: its lock in a `with` block."""

import os

import redis
from redis_lock import RedisLock

client = redis.Redis.from_url(os.environ["REDIS_URL"])
with RedisLock(client, name="orders", expire_timeout=10):
    client.incr("paid")
