"""The lease test with redlatch. The server is a program beside the test; the package has it."""

import pytest
import redis
from redis.exceptions import LockNotOwnedError


@pytest.mark.redlatch(freeze=True)
def test_lease(redlatch):
    first, second = (redis.Redis(**redlatch.kwargs).lock("stock", timeout=30) for _ in range(2))
    assert first.acquire(blocking=False)
    assert not second.acquire(blocking=False)

    redlatch.clock.advance(31)
    assert second.acquire(blocking=False)
    with pytest.raises(LockNotOwnedError):
        first.release()
