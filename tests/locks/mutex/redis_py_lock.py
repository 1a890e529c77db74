"""redis-py's own Lock as one of the clients: what it asks and hears, in the lines of history.rs."""

import os
import random
import time

import redis
from redis.backoff import NoBackoff
from redis.exceptions import LockNotOwnedError, RedisClusterException, RedisError
from redis.retry import Retry

HOST, PORT = os.environ["REDLATCH_MUTEX_SERVER"].split(":")
END = time.monotonic() + int(os.environ["REDLATCH_MUTEX_MILLIS"]) / 1000
LOCKS = ["lock:one", "lock:two", "lock:three"]
IS_NATIVE = os.environ["REDLATCH_MUTEX_NATIVE"] == "true"
IS_KILLED = os.environ["REDLATCH_MUTEX_KILLED"] == "true"

# That nobody answers is no RedisError in cluster mode.
FAILURES = RedisError, RedisClusterException

dice = random.Random(int(os.environ["REDLATCH_MUTEX_SEED"]))
# A call that is sent twice would be two calls to the checker.
only_once = {"protocol": 2, "retry": Retry(NoBackoff(), 0)}


def connect():
    """A client of the server, or of all groups of a cluster. Who leads them is asked of the server, which may be down."""
    if "REDLATCH_MUTEX_GROUPS" not in os.environ:
        return redis.Redis(host=HOST, port=int(PORT), **only_once)
    while time.monotonic() < END:
        try:
            return redis.RedisCluster(host=HOST, port=int(PORT), **only_once)
        except FAILURES:
            time.sleep(0.02)
    return None


client = connect()
book = open(os.environ["REDLATCH_MUTEX_HISTORY"], "a", buffering=1)
calls = 0


def record(lock, verb, token, lease_ms, act):
    """Writes the call down before it leaves, and its answer when it is there."""
    global calls
    calls += 1
    name = f"py-{os.getpid()}-{calls}"
    lease = "" if lease_ms is None else f" {lease_ms}"
    book.write(f"sent {name} {time.monotonic_ns()} {lock} {verb} {token}{lease}\n")
    try:
        done = act()
    except LockNotOwnedError:
        done = False
    number = f" {done}" if verb == "token" and done else ""
    book.write(f"got {name} {time.monotonic_ns()} {'yes' if done else 'no'}{number}\n")
    return done


def seconds(lease_ms):
    """A lease that redis-py, which cuts fractions of milliseconds off, sends as so many."""
    return (lease_ms + 0.5) / 1000


def use(name):
    lease_ms = dice.randint(1, 4000 if IS_KILLED else 150)
    lock = client.lock(name, timeout=seconds(lease_ms), thread_local=False)
    token = f"py-{os.getpid()}-{calls}-lock"
    if not record(name, "acquire", token, lease_ms, lambda: lock.acquire(blocking=False, token=token)):
        return
    if IS_NATIVE:
        record(name, "token", token, None, lambda: client.execute_command("LOCK.TOKEN", name, token))
    # It stalls past its lease now and then.
    time.sleep(dice.uniform(0, 1.3 if dice.random() < 0.3 else 0.5) * lease_ms / 1000)
    if dice.random() < 0.5:
        more_ms = dice.randint(1, 100)
        if not record(name, "extend", token, more_ms, lambda: lock.extend(seconds(more_ms), replace_ttl=True)):
            return
    if dice.random() < 0.8:
        record(name, "release", token, None, lambda: lock.release() is None)


while time.monotonic() < END:
    try:
        use(dice.choice(LOCKS))
    except FAILURES:
        # The server was killed, or nobody leads: the call stays without an answer.
        if not IS_KILLED:
            raise
    time.sleep(dice.uniform(0, 0.004))
