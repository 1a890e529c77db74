"""redis-py's lock, in the ways in which it fails."""

import pytest
from redis.exceptions import ConnectionError, LockNotOwnedError, ResponseError

pytestmark = pytest.mark.redlatch(freeze=True)


def test_a_lease_that_ends_lets_the_next_one_in(redlatch, connect):
    first, second = (connect(redlatch).lock("stock", timeout=30) for _ in range(2))
    assert first.acquire(blocking=False) and not second.acquire(blocking=False)
    redlatch.clock.advance(30.001)
    assert second.acquire(blocking=False)
    with pytest.raises(LockNotOwnedError):
        first.release()
    assert second.owned()


def test_a_renewal_that_is_lost_ends_the_lease(redlatch, connect):
    first, second = (connect(redlatch).lock("stock", timeout=30) for _ in range(2))
    first.acquire(blocking=False)
    redlatch.clock.advance(10)
    with redlatch.faults.drop_before(key="stock") as fault, pytest.raises(ConnectionError):
        first.reacquire()
    assert fault
    redlatch.clock.advance(20.001)
    assert second.acquire(blocking=False) and not first.owned()


def test_a_reply_that_is_lost_leaves_a_lock_that_nobody_knows_to_have(redlatch, connect):
    fault = redlatch.faults.drop_reply(command="SET", key="stock", times=1)
    lock = connect(redlatch, retries=1).lock("stock", timeout=30)
    assert not lock.acquire(blocking=False), "the client sent SET NX again, and met itself"
    assert fault.hits == 1
    assert connect(redlatch).pttl("stock") == 30_000
    redlatch.clock.advance(30.001)
    assert lock.acquire(blocking=False)


def test_a_holder_that_pauses_past_its_lease_is_stopped_by_the_token(redlatch, connect):
    slow, fast = connect(redlatch), connect(redlatch)
    first, second = slow.lock("stock", timeout=30), fast.lock("stock", timeout=30)
    first.acquire(blocking=False)
    old = slow.execute_command("LOCK.TOKEN", "stock", first.local.token)
    redlatch.clock.advance(31)
    second.acquire(blocking=False)
    new = fast.execute_command("LOCK.TOKEN", "stock", second.local.token)
    assert fast.execute_command("LOCK.GUARD", "shelf", new) == 1
    with pytest.raises(ResponseError, match="STALE token"):
        slow.execute_command("LOCK.GUARD", "shelf", old)
    assert any(finding["rule"] == "work-after-lease" for finding in _release_late(redlatch, first))


def _release_late(redlatch, lock):
    with pytest.raises(LockNotOwnedError):
        lock.release()
    return redlatch.check()
