"""Takes and releases a lock, or is woken, so many times, and prints the seconds that took: clients.py KIND PORT TIMES."""

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


def blpop(port):
    import redis

    client = redis.Redis(port=port)
    waiting = redis.Connection(port=port)

    def once():
        # The wait has begun when the element comes, without a second thread.
        waiting.send_command("BLPOP", "list:client", 0)
        client.rpush("list:client", "element")
        return waiting.read_response()

    return once


def pub_sub(port):
    import redis

    client = redis.Redis(port=port)
    waiting = client.pubsub(ignore_subscribe_messages=True)
    waiting.subscribe("channel:client")
    waiting.get_message(timeout=30)

    def once():
        client.publish("channel:client", "message")
        return waiting.get_message(timeout=30)

    return once


KINDS = {"redis-py Lock": redis_py, "redlock": redlock, "wake-up by BLPOP": blpop, "wake-up by pub/sub": pub_sub}


def main():
    kind, port, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    once = KINDS[kind](port)
    begun = time.perf_counter()
    for _ in range(times):
        if not once():
            raise SystemExit("a free lock was not granted, or nobody was woken")
    print(time.perf_counter() - begun)


main()
