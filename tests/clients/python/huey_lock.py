"""huey's lock_task and rate_limit on each of its Redis storages, and tasks that take the lock."""

import logging
import threading
import time

import redis
from huey import PriorityRedisExpireHuey, PriorityRedisHuey, RedisExpireHuey, RedisHuey
from huey.exceptions import RateLimitExceeded, TaskLockedException

from checks import HOST, PORT, Till, check, done, race, refused

client = redis.Redis(host=HOST, port=PORT)
# A warning for each task that comes again is what it is built to give.
logging.getLogger("huey").setLevel(logging.ERROR)


def enter(lock):
    with lock:
        pass


def locks(huey):
    """What lock_task promises: a lock that refuses instead of waiting, for as long as the work takes."""
    name = type(huey).__name__
    with huey.lock_task("stock") as held:
        check(f"{name}: acquire", held.is_locked() and huey.is_locked("stock"))
        other = huey.lock_task("stock")
        check(f"{name}: contended acquire is refused", refused(TaskLockedException, lambda: enter(other)))
        check(f"{name}: the refused one released nothing", huey.is_locked("stock"))
    check(f"{name}: release", not huey.is_locked("stock"))
    huey.lock_task("left").acquire()
    huey.lock_task("right").acquire()
    check(
        f"{name}: locks are flushed by name", huey.flush_locks("left", "right", "none") == {"left", "right"}
    )

    limit = huey.rate_limit("calls", limit=3, per=3_600)
    for _ in range(3):
        enter(limit)
    check(
        f"{name}: a rate limit",
        refused(RateLimitExceeded, lambda: enter(limit)) and limit.current_usage() == 4,
    )
    limit.reset()
    enter(limit)

    def round_of(critical):
        while True:
            try:
                with huey.lock_task("race"):
                    return critical()
            except TaskLockedException:
                time.sleep(0.003)

    race(round_of)


def leases(huey):
    """A lease for the lock, where the storage can have one: as a key always, as a field since Redis 7.4."""
    name = type(huey).__name__
    try:
        huey.lock_task("lease", ttl=1).acquire()
    except NotImplementedError:
        is_old = tuple(map(int, client.info("server")["redis_version"].split(".")[:2])) < (7, 4)
        return check(f"{name}: a lease needs a server that says it is newer", is_old)
    check(f"{name}: acquire a short lease", huey.is_locked("lease"))
    start = time.monotonic()
    while True:
        try:
            huey.lock_task("lease", ttl=10).acquire()
            break
        except TaskLockedException:
            time.sleep(0.01)
    check(f"{name}: expiry hands over", time.monotonic() - start >= 0.9, time.monotonic() - start)


def consumed(huey):
    """Tasks of four workers that retry until the lock is theirs, and their results."""
    till = Till()

    @huey.task(retries=500)
    @huey.lock_task("counting")
    def count(step):
        seen = till.enter()
        time.sleep(0.001)
        till.leave(seen)
        return step

    consumer = huey.create_consumer(workers=4, initial_delay=0.005, max_delay=0.02, check_worker_health=False)
    consumer._set_signal_handlers = lambda: None
    consumer.start()
    results = [count(step) for step in range(12)]
    steps = [result.get(blocking=True, timeout=30) for result in results]
    check(f"{type(huey).__name__}: every task ends", steps == list(range(12)), steps)
    consumer.stop(graceful=True)
    till.check(12)


server = {"host": HOST, "port": PORT}
for kind in [RedisHuey, RedisExpireHuey, PriorityRedisHuey, PriorityRedisExpireHuey]:
    huey = kind(kind.__name__, **server)
    locks(huey)
    leases(huey)
    consumed(huey)
check("no thread is left", threading.active_count() == 1, threading.enumerate())
done()
