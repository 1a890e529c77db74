"""Beaker: the lock with which its cache in Redis lets one process make a value."""

import os

import redis
from beaker.ext.redisnm import RedisNamespaceManager

url = os.environ["REDIS_URL"]
client = redis.StrictRedis.from_url(url)
lock = RedisNamespaceManager("orders", url).get_creation_lock("paid")
lock.acquire()
client.incr("paid")
lock.release()
