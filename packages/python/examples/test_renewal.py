import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, LockNotOwnedError
from redis.retry import Retry


@pytest.mark.redlatch(freeze=True)
def test_a_renewal_that_is_lost(redlatch):
    # Without retries, as redis-py would send the lost request again.
    client = redis.Redis(**redlatch.kwargs, retry=Retry(NoBackoff(), 0))
    held, heir = (client.lock("stock", timeout=30) for _ in range(2))
    held.acquire()
    redlatch.clock.advance(20)
    fault = redlatch.faults.drop_before(script="extend")
    with pytest.raises(ConnectionError):
        held.reacquire()
    assert fault.hits == 1

    # The lease was not renewed, so another one gets the lock, and the first cannot release it.
    redlatch.clock.advance(10.001)
    assert heir.acquire(blocking=False)
    with pytest.raises(LockNotOwnedError):
        held.release()
