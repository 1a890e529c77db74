"""The clock: leases end, waits end and time is told without a test that sleeps."""

import threading
import time
from datetime import datetime, timedelta, timezone

import pytest

from redlatch import CommandError


def test_a_lease_ends_in_the_millisecond_after_its_last(redlatch, connect):
    client = connect(redlatch)
    redlatch.clock.freeze()
    client.set("lock:stock", "worker-1", nx=True, px=30_000)
    redlatch.clock.advance(30)
    assert client.get("lock:stock") == "worker-1"
    redlatch.clock.advance(timedelta(milliseconds=1))
    assert client.get("lock:stock") is None


def test_time_stands_still_and_moves_as_told(redlatch, connect):
    client = connect(redlatch)
    start = redlatch.clock.freeze()
    assert client.time() == client.time()
    assert redlatch.clock.advance(0.25) == pytest.approx(start + 0.25)
    assert redlatch.clock.now() == pytest.approx(start + 0.25)
    noon = datetime(2040, 1, 1, 12, tzinfo=timezone.utc)
    assert redlatch.clock.set(noon) == noon.timestamp()
    assert client.time()[0] == int(noon.timestamp())
    with pytest.raises(CommandError):
        redlatch.clock.set(noon - timedelta(days=1))
    assert redlatch.clock.now() == noon.timestamp()


def test_next_goes_from_deadline_to_deadline(redlatch, connect):
    client = connect(redlatch)
    start = redlatch.clock.freeze()
    client.set("first", "x", px=10_000)
    client.set("second", "x", px=20_000)
    state = redlatch.clock.show()
    assert state["mode"] == "frozen" and state["now"] == round(start * 1000)
    assert [deadline["key"] for deadline in state["deadlines"]] == ["first", "second"]
    assert [deadline["in"] // 1000 for deadline in state["deadlines"]] == [10, 20]
    redlatch.clock.next()
    assert client.keys() == ["second"]
    redlatch.clock.next()
    assert client.keys() == []
    assert redlatch.clock.next() is None


def test_a_wait_ends_when_the_clock_says_so(redlatch, connect):
    redlatch.clock.freeze()
    waiter = connect(redlatch)
    found = []
    thread = threading.Thread(target=lambda: found.append(waiter.blpop("jobs", 3600)))
    thread.start()
    while not any(deadline["what"] == "wait" for deadline in redlatch.clock.show()["deadlines"]):
        pass
    redlatch.clock.advance(3600)
    thread.join()
    assert found == [None]


def test_auto_goes_to_the_next_deadline_while_everybody_waits(redlatch, connect):
    client = connect(redlatch)
    client.set("lock:stock", "worker-1", nx=True, px=3_600_000)
    redlatch.clock.auto(idle=timedelta(milliseconds=5))
    began = time.monotonic()
    assert client.blpop("jobs", 7200) is None
    assert client.get("lock:stock") is None and time.monotonic() - began < 60
    redlatch.clock.auto(False)
    assert redlatch.clock.show()["mode"] == "frozen"


def test_a_step_of_the_wall_clock_moves_no_lease(redlatch, connect):
    client = connect(redlatch)
    start = redlatch.clock.freeze()
    client.set("lock:stock", "worker-1", px=30_000)
    assert redlatch.clock.step_wall(timedelta(hours=-1)) == pytest.approx(start - 3600)
    assert client.pttl("lock:stock") == 30_000


def test_a_clock_runs_on_from_where_it_stands(redlatch, connect):
    client = connect(redlatch)
    redlatch.clock.freeze()
    there = redlatch.clock.advance(timedelta(days=1))
    assert redlatch.clock.run() >= there
    assert redlatch.clock.show()["mode"] == "running"
    before = client.time()
    while client.time() == before:
        pass
