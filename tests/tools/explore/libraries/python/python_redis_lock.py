"""python-redis-lock: its lock in a `with` block."""

import os

import redis
import redis_lock

client = redis.Redis.from_url(os.environ["REDIS_URL"])
with redis_lock.Lock(client, "orders", expire=10):
    client.incr("paid")
