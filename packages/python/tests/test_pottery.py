"""pottery's Redlock on five nodes of one process."""

import time

import pytest
from pottery import Redlock, ReleaseUnlockedLock
from pottery.exceptions import QuorumIsImpossible

pytestmark = pytest.mark.redlatch(freeze=True, nodes=5)


@pytest.fixture
def lock(redlatch, connect):
    def lock(key="stock"):
        masters = {connect(url) for url in redlatch.nodes.urls}
        return Redlock(key=key, masters=masters, auto_release_time=10, raise_on_redis_errors=True)

    return lock


def test_two_nodes_of_five_may_crash(redlatch, lock):
    redlatch.nodes.crash(1)
    redlatch.nodes.crash(4)
    first, second = lock(), lock()
    assert first.acquire(blocking=False) and not second.acquire(blocking=False)
    redlatch.nodes.crash(2)
    with pytest.raises(QuorumIsImpossible):
        second.acquire(blocking=False)


def test_a_lock_ends_on_all_nodes_at_once(redlatch, lock):
    first, second = lock(), lock()
    assert first.acquire(blocking=False)
    redlatch.clock.advance(10.001)
    assert second.acquire(blocking=False)
    with pytest.raises(ReleaseUnlockedLock):
        first.release()


def test_nodes_that_forget_let_two_in(redlatch, lock):
    """Why nodes that were lost must stay away for longer than the longest lease."""
    first, second = lock(), lock()
    assert first.acquire(blocking=False)
    until(lambda: all(node["keys"] for node in redlatch.nodes.list()))
    for node in (1, 2, 3):
        redlatch.nodes.crash(node)
        redlatch.nodes.start(node)
    assert second.acquire(blocking=False)


def test_a_lost_reply_leaves_a_minority_behind(redlatch, lock):
    faults = [redlatch.faults.drop_reply(command="SET", node=node, times=1) for node in (1, 2)]
    first = lock()
    assert first.acquire(blocking=False)
    until(lambda: [fault.hits for fault in faults] == [1, 1])
    first.release()
    # It also releases where it does not know that it holds.
    until(lambda: not any(node["keys"] for node in redlatch.nodes.list()))


def until(is_true):
    """Waits for the requests that pottery leaves behind once a majority has answered."""
    limit = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < limit
