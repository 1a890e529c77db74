"""Takes a lock, works while it is held, and says who has it if it is not granted."""

import redis

from redlatch_client import LockHeld, Locks


def restock(client: redis.Redis, articles, write) -> bool:
    locks = Locks(client)  # one for the whole program
    try:
        with locks.lock("lock:stock", wait=5, meta={"reason": "delivery 4711"}) as held:
            for article in articles:
                held.raise_if_lost()
                write(article, held.token)
    except LockHeld as refusal:
        print(refusal)  # who has it, why, since when, and how to break it
        return False
    return True
