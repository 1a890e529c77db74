"""Holds locks of all groups by redis-py in cluster mode, waits for a line while a node is killed, extends and releases them.

Usage: groups.py PORT...
"""

import sys
import time

from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import ClusterDownError, ConnectionError, RedisClusterException, TimeoutError

LOCKS = 32
PATIENCE = 30


def main():
    nodes = [ClusterNode("127.0.0.1", int(port)) for port in sys.argv[1:]]
    redis = RedisCluster(startup_nodes=nodes, socket_timeout=5)
    locks = [redis.lock(f"job:{number}", timeout=60) for number in range(LOCKS)]
    for lock in locks:
        assert lock.acquire(blocking=False)
    print("holds", flush=True)
    sys.stdin.readline()
    until = time.monotonic() + PATIENCE
    for lock in locks:
        found(until, lambda: lock.extend(60, replace_ttl=True))
        other = redis.lock(lock.name, timeout=60)
        assert not found(until, lambda: other.acquire(blocking=False)), "two holders"
        found(until, lock.release)
    print(f"extended and released {len(locks)}", flush=True)


def found(until, request):
    """What a request answers once its leader is found."""
    while True:
        try:
            return request()
        except (ClusterDownError, ConnectionError, RedisClusterException, TimeoutError):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


main()
