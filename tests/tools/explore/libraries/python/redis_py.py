"""redis-py: its lock in a `with` block."""

import os

import redis

client = redis.Redis.from_url(os.environ["REDIS_URL"])
with client.lock("orders", timeout=10):
    client.incr("paid")
