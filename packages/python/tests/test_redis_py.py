"""redis-py's lock, in the ways in which it fails."""

import pytest
from redis.exceptions import LockNotOwnedError

pytestmark = pytest.mark.redlatch(freeze=True)


def test_a_lease_that_ends_lets_the_next_one_in(redlatch, connect):
    first, second = (connect(redlatch).lock("stock", timeout=30) for _ in range(2))
    assert first.acquire(blocking=False) and not second.acquire(blocking=False)
    redlatch.clock.advance(30.001)
    assert second.acquire(blocking=False)
    with pytest.raises(LockNotOwnedError):
        first.release()
    assert second.owned()


def test_a_reply_that_is_lost_leaves_a_lock_that_nobody_knows_to_have(redlatch, connect):
    fault = redlatch.faults.drop_reply(command="SET", key="stock", times=1)
    lock = connect(redlatch, retries=1).lock("stock", timeout=30)
    assert not lock.acquire(blocking=False), "the client sent SET NX again, and met itself"
    assert fault.hits == 1
    assert connect(redlatch).pttl("stock") == 30_000
    redlatch.clock.advance(30.001)
    assert lock.acquire(blocking=False)


def test_work_after_the_lease_is_found(redlatch, connect):
    lock = connect(redlatch).lock("stock", timeout=30)
    lock.acquire(blocking=False)
    redlatch.clock.advance(30.001)
    with pytest.raises(LockNotOwnedError):
        lock.release()
    assert {finding["rule"] for finding in redlatch.check()} == {"late"}
