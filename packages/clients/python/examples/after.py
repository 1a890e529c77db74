"""After: the lock is on one redlatch. It waits in the queue, is renewed while it is held, and has a token."""

import redis

from redlatch_client import LockHeld, Locks


def restock(locks: Locks, articles, write) -> bool:
    try:
        with locks.lock("lock:stock", lease=30, wait=5) as held:
            for article in articles:
                held.raise_if_lost()
                write(article, held.token)
    except LockHeld:
        return False
    return True


if __name__ == "__main__":
    restock(Locks(redis.Redis("10.0.0.1")), ["shirts", "shoes"], print)
