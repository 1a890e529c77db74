"""A Redis Cluster of several nodes in one process."""

import pytest
from redis.cluster import RedisCluster
from redis.exceptions import ClusterDownError

from redlatch import Server


@pytest.fixture(scope="module")
def server():
    with Server("--cluster-enabled", "yes", nodes=3) as server:
        yield server


def test_locks_are_on_all_nodes_and_follow_their_slots(server):
    orders = server.namespace()
    with RedisCluster(**orders.kwargs) as client:
        keys = ["b", "c", "a"]  # Their slots are on the nodes 1, 2 and 3.
        assert [client.get_node_from_key(key).port for key in keys] == server.ports
        held, other = (client.lock("a", timeout=30, thread_local=False) for _ in range(2))
        assert held.acquire() and not other.acquire(blocking=False)
        assert orders.slots.move(client.keyslot("a"), 1) == 1
        assert held.extend(30) and not other.acquire(blocking=False)
        held.release()


def test_a_node_that_fails_takes_the_cluster_of_its_namespace_down(server):
    orders, other = server.namespace(), server.namespace()
    orders.clock.freeze()
    with RedisCluster(**orders.kwargs) as client, RedisCluster(**other.kwargs) as unharmed:
        orders.nodes.crash(3)
        orders.clock.advance(15.001)
        with pytest.raises(ClusterDownError):
            client.get("b")
        assert unharmed.get("b") is None
        orders.nodes.start(3)
        assert client.set("a", "x")


@pytest.mark.parametrize("is_replicated", [True, False])
def test_a_failover_grants_a_lock_again_only_if_its_master_has_not_replicated_it(is_replicated):
    with Server("--cluster-enabled", "yes", "--cluster-replicas", "1", nodes=6) as server:
        orders = server.namespace()
        orders.clock.freeze()
        with RedisCluster(**orders.kwargs) as client:
            held = client.lock("a", timeout=60)
            orders.nodes.replication(3, is_replicated)
            assert held.acquire(blocking=False)
        orders.nodes.crash(3)
        orders.clock.advance(15.001)
        with RedisCluster(**orders.kwargs) as client:
            other = client.lock("a", timeout=60)
            assert other.acquire(blocking=False) is not is_replicated
        assert [finding["rule"] for finding in orders.check()] == ([] if is_replicated else ["two-holders"])
