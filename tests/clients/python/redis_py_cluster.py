"""redis-py in cluster mode: `RedisCluster` with its `Lock`, from threads and from asyncio tasks."""

import asyncio
import threading

import redis
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.cluster import RedisCluster
from redis.exceptions import ClusterCrossSlotError, LockNotOwnedError, RedisClusterException

from checks import HOST, LEASE_MS, PORT, PORTS, check, done, expiry_hands_over, race_of_tasks, race_under, refused

client = RedisCluster(host=HOST, port=PORT)
check("the nodes are those that share the slots", sorted(node.port for node in client.get_nodes()) == sorted(PORTS))
NAMES = ["", "a", "123456789", "{user:7}:cart", "a{}b", "{{x}}", "x}{y}z", "{open", "\u00e9{\u00fc}"]
check("both compute the same slots", all(client.cluster_keyslot(name) == client.keyslot(name) for name in NAMES))

first, second = (client.lock("stock", timeout=10, thread_local=False) for _ in range(2))
check("acquire", first.acquire() and first.locked() and first.owned())
check("contended acquire is refused", not second.acquire(blocking=False))
second.local.token = b"not the holder's"
check("release by a non-owner is refused", refused(LockNotOwnedError, second.release) and first.owned())
first.extend(5)
check("extend", 14_000 < client.pttl("stock") <= 15_000, client.pttl("stock"))
timer = threading.Timer(0.05, first.release)
timer.start()
check("contended acquire waits for the release", second.acquire(blocking_timeout=5))
timer.join()
second.release()
check("release", client.exists("stock") == 0)

lapsed, heir = client.lock("lease", timeout=LEASE_MS / 1000), client.lock("lease", timeout=10, sleep=0.005)
expiry_hands_over(lapsed.acquire, lambda: heir.acquire(blocking_timeout=5))
check("the lapsed holder cannot release", refused(LockNotOwnedError, lapsed.release) and heir.owned())
heir.release()

check("the native commands find their node", client.execute_command("LOCK.ACQUIRE", "native", "me") is not None)
check("and so does the release", client.execute_command("LOCK.RELEASE", "native", "me") == 1)
client.mset_nonatomic({"a": "1", "b": "2"})
check("keys of several slots are split", client.mget_nonatomic("a", "b") == [b"1", b"2"])
check("and refused in one request", refused(RedisClusterException, lambda: client.mget("a", "b")))

node = redis.Redis(host=HOST, port=PORT)
check("the server refuses them, too", refused(ClusterCrossSlotError, lambda: node.mget("a", "b")))
with client.pipeline() as pipe:
    check("a pipeline", pipe.set("{p}1", "x").get("{p}1").get("a").execute() == [True, b"x", b"1"])

messages = client.pubsub(ignore_subscribe_messages=True)
messages.ssubscribe("shard")
messages.get_sharded_message(timeout=1)
check("a shard channel has its subscriber", client.spublish("shard", "freed") == 1)
check("which gets the message", messages.get_sharded_message(timeout=5)["data"] == b"freed")
messages.close()

race_under(lambda: client.lock("race", timeout=10, sleep=0.005, thread_local=False))


async def tasks():
    async with AsyncRedisCluster(host=HOST, port=PORT) as cluster:
        lock = cluster.lock("tasks", timeout=10)
        check("asyncio: acquire", await lock.acquire() and await lock.owned())
        check("asyncio: contended acquire is refused", not await cluster.lock("tasks").acquire(blocking=False))
        await lock.release()
        check("asyncio: release", await cluster.exists("tasks") == 0)
        await race_of_tasks(lambda: cluster.lock("race", timeout=10, sleep=0.005))


asyncio.run(tasks())

node.config_set("cluster-announce-hostname", "localhost")
node.config_set("cluster-preferred-endpoint-type", "hostname")
with RedisCluster(host=HOST, port=PORT) as told:
    check("a client that is told a host name", told.set("told", "x") and told.delete("told") == 1)
done()
