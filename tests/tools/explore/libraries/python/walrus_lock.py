"""walrus: its lock in a `with` block."""

import os

from walrus import Database

client = Database.from_url(os.environ["REDIS_URL"])
with client.lock("orders", ttl=10_000):
    client.incr("paid")
