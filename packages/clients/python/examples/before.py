"""Before: the lock is a Redlock over several Redis servers, by redlock-py."""

from redlock import Redlock


def restock(locks: Redlock, articles, write) -> bool:
    lock = locks.lock("lock:stock", 30_000)
    if not lock:
        return False
    try:
        for article in articles:
            write(article)  # also if it takes longer than the lease
    finally:
        locks.unlock(lock)
    return True


if __name__ == "__main__":
    servers = [f"redis://10.0.0.{number}:6379" for number in range(1, 6)]
    restock(Redlock(servers, retry_count=25, retry_delay=0.2), ["shirts", "shoes"], print)
