"""sherlock: its lock in Redis in a `with` block."""

import os

import redis
from sherlock import RedisLock

client = redis.Redis.from_url(os.environ["REDIS_URL"])
with RedisLock("orders", client=client, expire=10, timeout=5):
    client.incr("paid")
