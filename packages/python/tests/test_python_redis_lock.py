"""python-redis-lock, whose waiters block in BLPOP."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import redis_lock
from redis.exceptions import ConnectionError


def test_a_waiter_is_served_when_the_lease_of_a_dead_holder_ends(redlatch, connect):
    redlatch.clock.auto(idle=0.005)
    start = redlatch.clock.now()
    dead = redis_lock.Lock(connect(redlatch), "stock", expire=30)
    assert dead.acquire(blocking=False)
    heir = redis_lock.Lock(connect(redlatch), "stock", expire=60)
    assert heir.acquire()
    assert redlatch.clock.now() >= start + 30
    with pytest.raises(redis_lock.NotAcquired):
        dead.release()


@pytest.mark.redlatch(freeze=True)
def test_a_wait_that_is_too_short_ends_without_the_lock(redlatch, connect):
    holder, waiter = (redis_lock.Lock(connect(redlatch), "stock", expire=30) for _ in range(2))
    assert holder.acquire(blocking=False)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(waiter.acquire, timeout=10)
        while not any(deadline["what"] == "wait" for deadline in redlatch.clock.show()["deadlines"]):
            assert not waiting.done()
        redlatch.clock.advance(10)
        assert waiting.result() is False


@pytest.mark.redlatch(freeze=True)
def test_a_release_whose_reply_is_lost_has_released(redlatch, connect):
    client = connect(redlatch)
    lock = redis_lock.Lock(client, "stock", expire=30)
    # The server learns the script, so that the reply to lose is not that it does not know it.
    lock.acquire(blocking=False)
    lock.release()
    lock.acquire(blocking=False)
    with redlatch.faults.drop_reply(key="lock:stock"), pytest.raises(ConnectionError):
        lock.release()
    assert redis_lock.Lock(client, "stock", expire=30).acquire(blocking=False)
