"""Every scenario of `../../conformance.json`, for threads and for asyncio, on every server and connection that it names."""

import contextlib

import pytest
import redis

import servers
from conformance import SCENARIOS, Runner


def on(server):
    return [pytest.param(each, id=each["name"]) for each in SCENARIOS if server in each["servers"]]


def run(face, scenario, make, server, restart=None):
    """`make` gets the module of redis-py, the class of its retries and further arguments; `server` are those of a client beside."""
    options = {"socket_timeout": scenario.get("client", {}).get("reply_timeout", 5)}
    locks = face.locks(lambda module, retry: make(module, retry, options))
    with contextlib.closing(redis.Redis(**server, protocol=3, decode_responses=True)) as beside:
        connection = beside.connection_pool.get_connection()
        Runner(locks, connection, restart).run(scenario["steps"])
        connection.disconnect()


def test_each_scenario_is_run_somewhere():
    known = {"plain", "redlatch", "redlatch-with-journal"}
    names = [scenario["name"] for scenario in SCENARIOS]
    assert len(set(names)) == len(names) >= 40
    assert all(scenario["steps"] and set(scenario["servers"]) <= known for scenario in SCENARIOS)


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("scenario", on("redlatch"))
def test_redlatch(face, scenario, protocol, server, no_retry):
    with server.namespace() as namespace:
        arguments = namespace.kwargs | {"protocol": protocol}
        run(face, scenario, lambda module, retry, more: module.Redis(**arguments, **no_retry(retry), **more), namespace.kwargs)


@pytest.mark.parametrize("product", ["redis", "valkey"])
@pytest.mark.parametrize("scenario", on("plain"))
def test_plain(face, scenario, product, plain_servers):
    if product not in plain_servers:
        pytest.skip(f"there is no {product}-server")
    where = {"unix_socket_path": plain_servers[product].socket}
    redis.Redis(**where).flushall()
    run(face, scenario, lambda module, retry, more: module.Redis(**where, **more), where)


@pytest.mark.parametrize("scenario", on("redlatch-with-journal"))
def test_killed_and_started_again(face, scenario):
    with servers.with_journal() as process:
        where = {"unix_socket_path": process.socket}
        run(face, scenario, lambda module, retry, more: module.Redis(**where, **more), where, process.restart)


@pytest.mark.parametrize("scenario", [each for each in on("redlatch") if "cluster" in each.values[0].get("connections", [])])
def test_cluster(face, scenario, cluster):
    with cluster.namespace() as namespace:
        node = redis.RedisCluster(**namespace.kwargs).get_node_from_key("k")
        beside = namespace.kwargs | {"port": node.port}
        run(face, scenario, lambda module, retry, more: module.cluster.RedisCluster(**namespace.kwargs, **more), beside)
