"""The lease test with fakeredis and freezegun.

FakeServer and FakeRedis are objects of this process, without sockets; TcpFakeServer is there for other clients. The moved
clock is that of the whole process, so it also moves what has nothing to do with Redis.
"""

import fakeredis
import freezegun
import pytest
from redis.exceptions import LockNotOwnedError


def test_lease():
    server = fakeredis.FakeServer()
    first, second = (fakeredis.FakeRedis(server=server).lock("stock", timeout=30) for _ in range(2))
    with freezegun.freeze_time() as clock:
        assert first.acquire(blocking=False)
        assert not second.acquire(blocking=False)

        clock.tick(31)
        assert second.acquire(blocking=False)
        with pytest.raises(LockNotOwnedError):
            first.release()
