import pytest
import redis


@pytest.mark.redlatch(freeze=True)
def test_a_lease_ends_without_sleep(redlatch):
    crashed, heir = (redis.Redis(**redlatch.kwargs).lock("stock", timeout=30) for _ in range(2))
    crashed.acquire()

    redlatch.clock.advance(30)  # the last millisecond of the lease
    assert not heir.acquire(blocking=False)
    redlatch.clock.advance(0.001)
    assert heir.acquire(blocking=False)
