"""Every scenario of `../../conformance.json`, for threads and for asyncio, on every server and connection that it names."""

import contextlib

import pytest
import redis
import redis.sentinel

import servers
from conformance import SCENARIOS, Runner

# Seconds: the default of `cluster-node-timeout`.
CLUSTER_NODE_TIMEOUT = 15


def on(server):
    return [pytest.param(each, id=each["name"]) for each in SCENARIOS if server in each["servers"]]


def by(connection, server):
    return [each for each in on(server) if connection in each.values[0].get("connections", [])]


def run(face, scenario, make, beside, restart=None):
    """`make` gets the module of redis-py, the class of its retries and further arguments; `beside` are arguments of a client that does
    what the scenario does to the server, or is that client."""
    settings = scenario.get("client", {})
    options = {"socket_timeout": settings.get("reply_timeout", 5)}
    budget = {"budget": settings["budget"]} if "budget" in settings else {}
    locks = face.locks(lambda module, retry: make(module, retry, options), **budget)
    if isinstance(beside, dict):
        beside = redis.Redis(**beside, protocol=3, decode_responses=True)
    with contextlib.closing(beside):
        send = beside.execute_command if isinstance(beside, redis.RedisCluster) else on_one_connection(beside)
        Runner(locks, send, restart).run(scenario["steps"])


def on_one_connection(client):
    """Sends words, and returns what comes as it is."""
    connection = client.connection_pool.get_connection()

    def send(*words):
        connection.send_command(*words)
        return connection.read_response()

    return send


def test_each_scenario_is_run_somewhere():
    known = {"hostile", "plain", "redlatch", "redlatch-cluster", "redlatch-replicated", "redlatch-with-journal"}
    names = [scenario["name"] for scenario in SCENARIOS]
    assert len(set(names)) == len(names) >= 40
    assert all(scenario["steps"] and set(scenario["servers"]) <= known for scenario in SCENARIOS)


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("scenario", on("redlatch"))
def test_redlatch(face, scenario, protocol, server, no_retry):
    with server.namespace() as namespace:
        arguments = namespace.kwargs | {"protocol": protocol}
        run(face, scenario, lambda module, retry, more: module.Redis(**arguments, **no_retry(retry), **more), namespace.kwargs)


@pytest.fixture(scope="module")
def hostile(server):
    with servers.hostile(server.ports[0]) as ports:
        yield ports


@pytest.mark.parametrize("scenario, peer", [(each, peer) for each in SCENARIOS for peer in each.get("peers", [])])
def test_hostile(face, scenario, peer, hostile, namespace):
    """With the own retries and without the time limits of redis-py: those of its user's client do not matter."""
    where = {"port": hostile[peer], "socket_timeout": None, "socket_connect_timeout": None}
    run(face, scenario, lambda module, retry, more: module.Redis(**where), namespace.kwargs)


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


@pytest.mark.parametrize("scenario", by("cluster", "redlatch"))
def test_cluster(face, scenario, cluster):
    with cluster.namespace() as namespace:
        node = redis.RedisCluster(**namespace.kwargs).get_node_from_key("k")
        beside = namespace.kwargs | {"port": node.port}
        run(face, scenario, lambda module, retry, more: module.cluster.RedisCluster(**namespace.kwargs, **more), beside)


@pytest.mark.parametrize("scenario", on("redlatch-cluster"))
def test_cluster_whose_masters_crash(face, scenario, cluster_with_replicas):
    with cluster_with_replicas.namespace() as namespace:
        beside = redis.RedisCluster(**namespace.kwargs, protocol=3, decode_responses=True)

        def crash_master():
            node = cluster_with_replicas.ports.index(beside.get_node_from_key("k").port) + 1
            namespace.nodes.crash(node)
            namespace.clock.advance(CLUSTER_NODE_TIMEOUT + 0.001)

        run(face, scenario, lambda module, retry, more: module.cluster.RedisCluster(**namespace.kwargs, **more), beside, crash_master)


def through(module, port, name, options):
    """A client that asks a Sentinel for the server."""
    return module.sentinel.Sentinel([("127.0.0.1", port)]).master_for(name, **options)


@pytest.fixture(scope="module")
def sentinel_of_redis():
    program = servers.redis_program()
    if not program:
        pytest.skip("there is no redis-server")
    port = servers.free_port()
    words = [program, "--port", str(port), "--unixsocket", "SOCKET", "--save", "", "--loglevel", "warning"]
    with servers.process_of(*words) as watched, servers.sentinel(program, port) as sentinel:
        yield sentinel, watched.socket


@pytest.mark.parametrize("scenario", by("sentinel", "plain"))
def test_sentinel_of_redis(face, scenario, sentinel_of_redis):
    port, path = sentinel_of_redis
    redis.Redis(unix_socket_path=path).flushall()
    run(face, scenario, lambda module, retry, more: through(module, port, "locks", more), {"unix_socket_path": path})


@pytest.fixture(scope="module")
def nodes():
    if not servers.has_nodes():
        pytest.skip("there is no etcd, or this redlatch cannot use it")
    with servers.nodes() as nodes:
        yield nodes


@pytest.mark.parametrize("scenario", [*by("sentinel", "redlatch"), *on("redlatch-replicated")])
def test_nodes(face, scenario, nodes):
    beside = through(redis, nodes.ports[0], "mymaster", {"protocol": 3, "decode_responses": True, "socket_timeout": 5})
    beside.flushall()
    run(face, scenario, lambda module, retry, more: through(module, nodes.ports[1], "mymaster", more), beside, nodes.kill_leader)
