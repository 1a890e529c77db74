import pytest
import redis
from pottery import ExtendUnlockedLock, Redlock
from redis.backoff import NoBackoff
from redis.retry import Retry


@pytest.mark.redlatch(freeze=True, nodes=5)
def test_redlock_with_crashed_nodes(redlatch):
    masters = {redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0)) for url in redlatch.urls}
    held, other = (Redlock(key="stock", masters=masters, auto_release_time=30) for _ in range(2))
    redlatch.nodes.crash(1)
    redlatch.nodes.crash(2)
    assert held.acquire(blocking=False)  # three of five know the lock
    held.extend()
    assert not other.acquire(blocking=False)

    redlatch.nodes.crash(3)
    with pytest.raises(ExtendUnlockedLock):  # two are no majority
        held.extend()
    redlatch.clock.advance(30.001)
    assert not other.acquire(blocking=False)
