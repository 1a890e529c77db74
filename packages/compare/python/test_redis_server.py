"""The lease test with a real redis-server, started by the test as Testcontainers does, but without the time of a container.

Nothing moves the time of a real server. The lease is cut from 30 s to 1 s, and the test sleeps through it.
"""

import socket
import subprocess
import time

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.exceptions import LockNotOwnedError
from redis.retry import Retry


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        redis.Redis(port=port, retry=Retry(ConstantBackoff(0.005), 1000)).ping()
        yield port
        server.terminate()


def test_lease(port):
    first, second = (redis.Redis(port=port).lock("stock", timeout=1) for _ in range(2))
    assert first.acquire(blocking=False)
    assert not second.acquire(blocking=False)

    time.sleep(1.1)
    assert second.acquire(blocking=False)
    with pytest.raises(LockNotOwnedError):
        first.release()
