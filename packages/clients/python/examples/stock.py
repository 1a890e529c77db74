"""Takes a lock, works while it is held, and says who has it if it is not granted."""

import redis

from redlatch_client import LockHeld, Locks


def restock(locks: Locks, articles, write) -> bool:
    try:
        with locks.lock("lock:stock", wait=5, meta={"reason": "delivery 4711"}) as held:
            for article in articles:
                held.raise_if_lost()
                write(article, held.token)
    except LockHeld as refusal:
        print(refusal)  # who has it, why, since when, and how to break it
        return False
    return True


if __name__ == "__main__":
    # One for the whole program.
    restock(Locks(redis.Redis()), ["shirts", "shoes"], print)
