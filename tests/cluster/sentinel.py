"""A program that finds the leader by Sentinel, holds a lock, and still holds it after the leader's end.

Arguments: the ports of the nodes. Says "holds", waits for a line, says "still" when it has asked the new leader.
"""

import sys
import time

from redis.exceptions import RedisError
from redis.sentinel import Sentinel

sentinel = Sentinel([("127.0.0.1", int(port)) for port in sys.argv[1:]], socket_timeout=5)
master = sentinel.master_for("mymaster", socket_timeout=5)
assert sentinel.discover_slaves("mymaster") == []
assert len(sentinel.sentinels[0].sentinel_sentinels("mymaster")) == len(sys.argv) - 2
lock = master.lock("by-sentinel", timeout=60)
assert lock.acquire(blocking=False)
print("holds", flush=True)
sys.stdin.readline()
begun = time.monotonic()
while True:
    try:
        assert lock.owned(), "the lock is lost"
        break
    except RedisError:
        assert time.monotonic() - begun < 30, "no leader"
        time.sleep(0.02)
assert not master.set("by-sentinel", "other", nx=True)
print("still", sentinel.discover_master("mymaster")[1], flush=True)
lock.release()
assert master.lock("by-sentinel", timeout=60).acquire(blocking=False)
