"""Takes and releases a lock so many times, and prints the seconds that took: clients.py KIND PORT LOCKS."""

import sys
import time


def redis_py(port):
    import redis

    lock = redis.Redis(port=port).lock("lock:client", timeout=30)
    return lambda: lock.acquire(blocking=False) and (lock.release() or True)


def redlock(port):
    from redlock import Redlock

    manager = Redlock([{"host": "127.0.0.1", "port": port}], retry_count=1)

    def once():
        lock = manager.lock("lock:client", 30_000)
        manager.unlock(lock)
        return lock

    return once


def main():
    kind, port, locks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    once = {"redis-py Lock": redis_py, "redlock": redlock}[kind](port)
    begun = time.perf_counter()
    for _ in range(locks):
        if not once():
            raise SystemExit("a free lock was not granted")
    print(time.perf_counter() - begun)


main()
