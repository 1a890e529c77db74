"""redlock, the one of PyPI: its RedLock in a `with` block."""

import os

import redis
from redlock import RedLock

url = os.environ["REDIS_URL"]
client = redis.StrictRedis.from_url(url)
with RedLock("orders", connection_details=[{"url": url}], ttl=10_000):
    client.incr("paid")
