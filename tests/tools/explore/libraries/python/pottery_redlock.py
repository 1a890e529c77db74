"""pottery: its Redlock in a `with` block."""

import os

import redis
from pottery import Redlock

client = redis.Redis.from_url(os.environ["REDIS_URL"])
with Redlock(key="orders", masters={client}, auto_release_time=10):
    client.incr("paid")
