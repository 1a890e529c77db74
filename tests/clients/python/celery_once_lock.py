"""celery-once: a task that is queued already is refused, with a worker on the Redis broker and backend."""

import time

import redis
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery_once import AlreadyQueued, QueueOnce

from checks import HOST, PORT, Stopwatch, Till, check, done, refused

URL = f"redis://{HOST}:{PORT}/0"
client = redis.Redis(host=HOST, port=PORT, decode_responses=True)
app = Celery("once", broker=URL, backend=URL)
app.conf.ONCE = {"backend": "celery_once.backends.Redis", "settings": {"url": URL, "default_timeout": 3_600}}
app.conf.worker_hijack_root_logger = False
till = Till()


@app.task(base=QueueOnce, once={"keys": ["order"]})
def ship(order, note=""):
    seen = till.enter()
    time.sleep(0.005)
    till.leave(seen)
    return order


@app.task(base=QueueOnce, once={"graceful": True, "timeout": 1})
def bill():
    return "billed"


@app.task(base=QueueOnce, once={"unlock_before_run": True})
def audit():
    return client.exists(audit.get_key()) == 0


first = ship.delay(7)
lock = ship.get_key(kwargs={"order": 7})
check("acquire", client.exists(lock) == 1 and 3_590 < client.ttl(lock) <= 3_600, lock)
check("queued again is refused", refused(AlreadyQueued, lambda: ship.delay(7, note="other words")))
try:
    ship.delay(7)
except AlreadyQueued as queued:
    check("with the time that is left", 3_590 < queued.countdown <= 3_600, queued.countdown)
second = ship.delay(8)
check("another order is another lock", second.id != first.id)

bill.delay()
check("a graceful task is dropped instead", bill.delay().state == "REJECTED")
watch = Stopwatch()
while bill.delay().state == "REJECTED":
    time.sleep(0.01)
check("until the lease ends", watch.ms() >= 500, watch.ms())
early = audit.delay()
check("a lock of its own", client.exists(audit.get_key()) == 1)

with start_worker(app, pool="solo", perform_ping_check=False, loglevel="ERROR"):
    check("the worker returns results", first.get(timeout=30) == 7 and second.get(timeout=30) == 8)
    check("a lock may end before its task runs", early.get(timeout=30) is True)
    while client.exists(lock):
        time.sleep(0.005)
    check("release after the run", True)
    check("and it can be queued again", ship.delay(7).get(timeout=30) == 7)

    accepted = []
    for order in [1, 2, 1, 2, 1, 2]:
        try:
            accepted.append(ship.delay(order))
        except AlreadyQueued:
            pass
    check("what was accepted is done", all(result.get(timeout=30) in [1, 2] for result in accepted))
till.check(3 + len(accepted))
done()
