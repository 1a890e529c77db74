"""redis-py's Lock and native holders of the same key; and what LOCK.LINT finds in mistakes made with redis-py."""

import time
from concurrent.futures import ThreadPoolExecutor

import redis
from redis.exceptions import LockNotOwnedError

from checks import HOST, PORT, check, done, refused

client = redis.Redis(host=HOST, port=PORT, decode_responses=True)
native = redis.Redis(host=HOST, port=PORT, decode_responses=True).execute_command
lock = redis.Redis(host=HOST, port=PORT).lock("stock", timeout=10, sleep=0.005, thread_local=False)
waiters = ThreadPoolExecutor()



def when(is_so):
    while not is_so():
        time.sleep(0.005)


def hows():
    """How the clients that wait for the lock do so: queued, or polling."""
    return {waiter["how"] for waiter in native("LOCK.WAITERS", "stock")}


first = native("LOCK.ACQUIRE", "stock", "first", "LEASE", 10_000)["token"]
check("what a native client holds is refused", not lock.acquire(blocking=False))
lock.local.token = b"not the holder's"
check("and cannot be released", refused(LockNotOwnedError, lock.release) and client.get("stock") == "first")

waiting = waiters.submit(lock.acquire, blocking_timeout=10)
when(lambda: "polling" in hows())
check("a release by a native client", native("LOCK.RELEASE", "stock", "first") == 1)
check("lets the next one have it", waiting.result() and lock.owned())

value = client.get("stock")
second = native("LOCK.TOKEN", "stock", value)
check("its token is higher", second > first, (first, second))
holder = native("LOCK.WHO", "stock")["holders"][0]
is_named = holder["owner"] == value and holder["client"]["lib-name"] == "redis-py"
check("LOCK.WHO names it", is_named and holder["client"]["lib-ver"] == redis.__version__, holder)
check("a native client is refused", native("LOCK.ACQUIRE", "stock", "heir") is None)
answer = native("LOCK.ACQUIRE", "stock", "heir", "WHY")
check("and may ask why", answer["refused"]["holder"] == value, answer)

waiting = waiters.submit(native, "LOCK.ACQUIRE", "stock", "heir", "LEASE", 10_000, "WAIT", 10_000)
# Who was refused twice counts as polling, so the queue is asked for.
when(lambda: "queued" in hows())
lock.release()
# One command later: nobody can have come between.
check("a native waiter has it as soon as it is released", client.get("stock") == "heir")
third = waiting.result()["token"]
check("with a higher token", third > second, (second, third))
check("and it is refused again", not lock.acquire(blocking=False))
check("until it is released", native("LOCK.RELEASE", "stock", "heir") == 1 and lock.acquire(blocking=False))
check("its lock is released by its value", native("LOCK.RELEASE", "stock", client.get("stock")) == 1)
check("which it learns", refused(LockNotOwnedError, lock.release))
fourth = native("LOCK.ACQUIRE", "stock", "fourth", "JUSTTOKEN")
check("a grant may be its token alone", fourth > third, (third, fourth))
check("with which it is released", native("LOCK.RELEASE", "stock", "fourth", "TOKEN", fourth) == 1)


def mistakes():
    """The rules that LOCK.LINT has seen broken on a key, each by redis-py."""
    found = native("LOCK.LINT")
    return {(finding["rule"], finding["key"]) for finding in found if finding["client"]["lib-name"] == "redis-py"}


def take(who, key, value="me", ms=60_000):
    return who.set(key, value, nx=True, px=ms)


client.config_set("lock-lint", "yes")
other = redis.Redis(host=HOST, port=PORT, decode_responses=True)
client.setnx("endless", "me")
check("a lock without a lease is found", ("no-lease", "endless") in mistakes())
take(client, "mine")
other.delete("mine")
check("the DEL of another's lock is found", ("foreign-delete", "mine") in mistakes())
short = client.lock("short", timeout=0.05)
short.acquire()
when(lambda: not client.exists("short"))
check("a release after the lease has ended is refused", refused(LockNotOwnedError, short.release))
check("and found", ("late", "short") in mistakes())
check("with its lease, which was too short", ("short-lease", "short") in mistakes())
renewed = client.lock("renewed", timeout=3)
renewed.acquire()
when(lambda: client.pttl("renewed") < 900)
check("a renewal in the last third of the lease", renewed.reacquire())
check("is found", ("late-renewal", "renewed") in mistakes())
take(client, "twins", "one value")
take(other, "twins", "one value")
check("two clients with one value are found", ("shared-value", "twins") in mistakes())
polled = (take(client, "twins", "another value") or ("fast-polling", "twins") in mistakes() for _ in range(2000))
check("fast polling is found", any(polled))
for who, keys in (client, ("left", "right")), (other, ("right", "left")):
    for key in keys:
        take(who, key)
    for key in keys:
        who.delete(key)
check("two locks taken in opposite orders are found", "opposite-orders" in {rule for rule, _ in mistakes()})
client.config_set("lock-lint", "no")
done()
