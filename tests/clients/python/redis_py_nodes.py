"""redis-py at a cluster of three nodes in one process: `RedisCluster` with its `Lock`, while slots move and a node crashes."""

import redis
from redis.cluster import RedisCluster
from redis.exceptions import ClusterDownError, LockNotOwnedError

from checks import HOST, PORT, check, done, race_under, refused

client = RedisCluster(host=HOST, port=PORT)
test = redis.Redis(host=HOST, port=PORT)
primaries = client.get_primaries()
check("the client knows three masters", len({node.port for node in primaries}) == 3, primaries)

ON_EACH = ["b", "c", "a"]  # Their slots are on the first, the second and the third node.
check("keys are on all nodes", len({client.get_node_from_key(key).port for key in ON_EACH}) == 3)
for key in ON_EACH:
    lock, other = (client.lock(key, timeout=10, thread_local=False) for _ in range(2))
    check(f"{key}: acquire", lock.acquire() and lock.owned())
    check(f"{key}: contended acquire is refused", not other.acquire(blocking=False))
    lock.extend(10)
    check(f"{key}: extend", client.pttl(key) > 10_000)
    lock.release()
    check(f"{key}: release", client.exists(key) == 0)


def move(key, node, *steps):
    return test.execute_command("TEST.SLOT", "MOVE", client.keyslot(key), "TO", node, *steps)


held, other = (client.lock("a", timeout=10, thread_local=False) for _ in range(2))
check("a lock is taken", held.acquire())
check("it moves, and its slot is half-way", move("a", 1, "STEPS", 1) == 1)
check("the client asks the other node: extend", held.extend(10) and client.pttl("a") > 10_000)
check("and so does another owner", not other.acquire(blocking=False))
check("the slot has moved", move("a", 1) == 0)
check("the client follows: extend", held.extend(10))
other.local.token = b"not the holder's"
check("release by a non-owner is refused", refused(LockNotOwnedError, other.release) and held.owned())
check("the next slot moves at once", move("a", 2) == 1)
held.release()
check("the client follows: release", client.exists("a") == 0)

race_under(lambda: client.lock("race", timeout=10, sleep=0.005, thread_local=False))

CHANNELS = [f"channel {number}" for number in range(10)]
heard = []
for number, channel in enumerate(CHANNELS):
    with client.pubsub(node=primaries[number % len(primaries)]) as messages:
        messages.subscribe(channel)
        messages.get_message(timeout=5)
        client.publish(channel, "freed")
        heard.append(messages.get_message(timeout=5))
check("ten channels of ten are heard", all(heard) and [each["channel"].decode() for each in heard] == CHANNELS, heard)

test.execute_command("TEST.CLOCK", "FREEZE")
test.execute_command("TEST.NODE", "CRASH", 3)
test.execute_command("TEST.CLOCK", "ADVANCE", 15_001)
check("a failed node takes the cluster down", refused(ClusterDownError, lambda: client.get("b")))
test.execute_command("TEST.NODE", "START", 3)
check("which is up when the node is", client.lock("b", timeout=10).acquire())
done()
