"""What happened: history, calls, findings, pictures."""

import pytest

from redlatch import CommandError


def test_the_history_has_requests_and_replies(redlatch, connect):
    client = connect(redlatch, client_name="worker-1")
    client.set("lock:stock", "worker-1", nx=True, px=30_000)
    client.set("other", "x")
    sets = redlatch.history(command="SET", key="lock:*")
    assert sets and all(event["key"] == "lock:stock" for event in sets)
    assert {event["name"] for event in sets} == {"worker-1"}
    assert any("worker-1" in event.get("args", []) for event in sets)
    last = redlatch.history()[-1]["id"]
    assert redlatch.history(since=last, command="SET") == []
    assert len(redlatch.history(count=1)) == 1


def test_a_grant_and_a_refusal_are_events(redlatch, connect):
    for value in ("worker-1", "worker-2"):
        connect(redlatch).set("lock:stock", value, nx=True, px=30_000)
    granted, refused = (event for event in redlatch.history(key="lock:stock") if event["kind"] in ("granted", "refused"))
    assert (granted["kind"], granted["holder"], granted["lease"]) == ("granted", "worker-1", 30_000)
    assert (refused["kind"], refused["holder"]) == ("refused", "worker-2") and "lease" not in refused


def test_calls_are_counted(redlatch, connect):
    client = connect(redlatch)
    for _ in range(3):
        client.get("key")
    client.set("lock:stock", "x")
    assert redlatch.calls(command="GET") == {"GET": 3}
    assert redlatch.calls(key="lock:*") == {"SET": 1}


def test_a_check_finds_what_clients_do_wrong(redlatch, connect):
    client = connect(redlatch)
    client.set("lock:stock", "worker-1", nx=True, px=30_000)
    assert redlatch.check() == []
    client.delete("lock:stock")
    (finding,) = redlatch.check()
    assert finding["rule"] == "blind-delete" and finding["key"] == "lock:stock" and finding["lines"]


def test_a_timeline_is_drawn(redlatch, connect):
    client = connect(redlatch, client_name="worker-1")
    client.set("lock:stock", "worker-1", nx=True, px=30_000)
    for format in ("text", "html"):
        drawn = redlatch.timeline(format)
        assert "lock:stock" in drawn and "worker-1" in drawn, format
    with pytest.raises(CommandError):
        redlatch.timeline("png")
