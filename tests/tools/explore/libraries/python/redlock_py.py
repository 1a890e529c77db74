"""redlock-py: `lock` and `unlock`, as its page has them."""

import os

import redis
from redlock import Redlock

url = os.environ["REDIS_URL"]
client = redis.Redis.from_url(url)
manager = Redlock([url])
lock = manager.lock("orders", 10_000)
assert lock, "somebody else has it"
client.incr("paid")
manager.unlock(lock)
