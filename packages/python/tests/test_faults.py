"""Faults, as redis-py meets them."""

from datetime import timedelta

import pytest
import redis

from redlatch import CommandError


def test_a_reply_is_lost_of_a_request_that_was_carried_out(redlatch, connect):
    client = connect(redlatch)
    fault = redlatch.faults.drop_reply(command="SET", key="lock:*")
    with pytest.raises(redis.ConnectionError):
        client.set("lock:stock", "worker-1", nx=True, px=30_000)
    assert client.get("lock:stock") == "worker-1"
    client.set("other", "x")
    assert (fault.met, fault.hits) == (1, 1)


def test_a_request_is_lost_before_it_is_carried_out(redlatch, connect):
    client = connect(redlatch)
    for fault in (redlatch.faults.drop_before(command="SET"), redlatch.faults.reset(command="SET")):
        with fault, pytest.raises(redis.ConnectionError):
            client.set("key", "x")
    assert client.get("key") is None
    client.set("key", "x")


def test_a_reply_ends_in_the_middle(redlatch, connect):
    client = connect(redlatch)
    client.set("key", "a long value")
    with redlatch.faults.half_reply(command="GET"), pytest.raises(redis.ConnectionError):
        client.get("key")
    assert client.get("key") == "a long value"


def test_an_error_is_the_reply(redlatch, connect):
    client = connect(redlatch)
    redlatch.faults.error("OOM command not allowed when used memory > 'maxmemory'.", command="SET", times=1)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        client.set("key", "x")
    assert client.set("key", "x")


def test_only_the_requests_that_fit_are_met(redlatch, connect):
    client = connect(redlatch)
    second = redlatch.faults.error("ERR second", command="GET", nth=2)
    outcomes = []
    for _ in range(4):
        try:
            outcomes.append(client.get("key"))
        except redis.ResponseError as error:
            outcomes.append(str(error))
    assert outcomes == [None, "second", None, None] and (second.met, second.hits) == (4, 1)


def test_the_share_of_a_seed_is_always_of_the_same_requests(redlatch_server, connect):
    def refused():
        with redlatch_server.namespace() as space:
            client = connect(space)
            space.faults.error("ERR no", command="SET", probability=0.5, seed=7)
            return [is_refused(client, number) for number in range(40)]

    def is_refused(client, number):
        try:
            return not client.set(f"key:{number}", "x")
        except redis.ResponseError:
            return True

    first = refused()
    assert first == refused() and 5 < sum(first) < 35


def test_a_lease_ends_right_behind_a_request(redlatch, connect):
    client = connect(redlatch)
    redlatch.faults.expire_key(command="SET", key="lock:*", times=1)
    assert client.set("lock:stock", "worker-1", nx=True, px=30_000)
    assert client.get("lock:stock") is None


def test_a_request_is_carried_out_twice(redlatch, connect):
    client = connect(redlatch)
    redlatch.faults.duplicate(command="INCRBY", times=1)
    assert client.incr("count") == 2


def test_a_reply_that_is_late_by_the_namespaces_clock(redlatch, connect):
    redlatch.clock.auto(idle=0.005)
    client = connect(redlatch)
    start = redlatch.clock.now()
    redlatch.faults.delay(10, command="SET")
    redlatch.faults.stall(timedelta(seconds=20), command="GET")
    redlatch.faults.pause_client(30, command="DEL")
    client.set("key", "x")
    assert redlatch.clock.now() >= start + 10
    client.get("key")
    assert redlatch.clock.now() >= start + 30
    client.delete("key")
    client.ping()
    assert redlatch.clock.now() >= start + 60


def test_faults_are_listed_removed_and_cleared(redlatch):
    first = redlatch.faults.drop_reply(command="SET")
    second = redlatch.faults.add("DELAY", 5, client="worker-*", times=3)
    assert [fault["id"] for fault in redlatch.faults.list()] == [first.id, second.id]
    assert first.remove() and not first.remove()
    with pytest.raises(LookupError):
        first.hits
    assert redlatch.faults.clear() == 1 and redlatch.faults.list() == []


def test_a_fault_that_cannot_be_is_refused(redlatch):
    with pytest.raises(CommandError):
        redlatch.faults.add("NO-SUCH-ACTION", command="SET")
    with pytest.raises(TypeError, match="no condition comand"):
        redlatch.faults.drop_reply(comand="SET")
    assert redlatch.faults.list() == []
