"""Nodes, as redis-py meets them."""

from datetime import timedelta

import pytest
import redis

pytestmark = pytest.mark.redlatch(freeze=True, nodes=3)


@pytest.fixture
def clients(redlatch, connect):
    return [connect(url, socket_timeout=30) for url in redlatch.nodes.urls]


def test_nodes_have_stores_of_their_own_and_one_clock(redlatch, clients):
    for number, client in enumerate(clients):
        assert client.set("key", number, px=10_000 * (number + 1))
    assert [client.get("key") for client in clients] == ["0", "1", "2"]
    redlatch.clock.advance(15)
    assert [client.get("key") for client in clients] == [None, "1", "2"]
    assert [node["state"] for node in redlatch.nodes.list()] == ["up"] * 3
    assert [node["port"] for node in redlatch.nodes.list()] == [
        client.connection_pool.connection_kwargs["port"] for client in clients
    ]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("node", [1, 2])
def test_a_node_that_has_crashed_does_not_answer_until_it_starts(redlatch, clients, node, keep):
    clients[node - 1].set("key", "x")
    redlatch.nodes.crash(node, keep=keep)
    for _ in range(2):
        with pytest.raises(redis.ConnectionError):
            clients[node - 1].ping()
    assert redlatch.nodes.list()[node - 1]["state"] == "crashed"
    redlatch.nodes.start(node)
    assert clients[node - 1].get("key") == ("x" if keep else None)


def test_a_node_that_pauses_answers_later(redlatch, connect, clients):
    redlatch.nodes.pause(2)
    impatient = connect(redlatch.nodes.urls[1], socket_timeout=0.02)
    with pytest.raises(redis.RedisError):
        impatient.ping()
    redlatch.nodes.resume(2)
    assert clients[1].ping()


def test_a_clock_of_a_node_is_ahead(redlatch, clients):
    redlatch.nodes.skew(3, timedelta(seconds=5))
    times = [client.time()[0] for client in clients]
    assert times[1] == times[0] and times[2] == times[0] + 5


def test_a_partition_concerns_the_clients_that_it_names(redlatch, connect):
    left, right = (connect(redlatch.nodes.urls[1], client_name=name, socket_timeout=30) for name in ("left-1", "right-1"))
    impatient = connect(redlatch.nodes.urls[1], client_name="left-2", socket_timeout=0.02)
    assert left.ping() and right.ping()
    redlatch.nodes.partition(2, "left-*")
    with pytest.raises(redis.RedisError):
        impatient.ping()
    assert right.ping()
    redlatch.nodes.heal(2)
    assert left.ping()


def test_what_is_done_to_nodes_concerns_one_namespace(redlatch, connect):
    with redlatch._server.namespace() as other:
        redlatch.nodes.crash(1)
        assert connect(other.urls[0]).ping()
        assert [node["state"] for node in other.nodes.list()] == ["up"] * 3
