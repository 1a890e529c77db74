"""redis-py 2: its Lock in a `with` block."""

import os

import redis
from redis.lock import Lock

client = redis.StrictRedis.from_url(os.environ["REDIS_URL"])
with Lock(client, "orders", timeout=10):
    client.incr("paid")
