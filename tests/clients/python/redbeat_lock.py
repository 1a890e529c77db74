"""celery-redbeat: of several beats that share a server one ticks, for as long as it extends the lock."""

import threading
import time

import redis
from celery import Celery
from celery.beat import Service
from redbeat import RedBeatScheduler, RedBeatSchedulerEntry

from checks import HOST, PORT, Stopwatch, check, done

URL = f"redis://{HOST}:{PORT}/0"
LOCK = "redbeat::lock"
client = redis.Redis(host=HOST, port=PORT, decode_responses=True)


class Beat:
    """One beat in a thread of its own, as `celery beat` runs one in a process."""

    def __init__(self):
        app = Celery("beats", broker=URL)
        app.conf.update(
            beat_max_loop_interval=0.05,
            beat_schedule={"tick": {"task": "tick", "schedule": 0.05}},
            redbeat_lock_timeout=1,
            redbeat_redis_url=URL,
        )
        self.service = Service(app, scheduler_cls=RedBeatScheduler)
        self.thread = threading.Thread(target=self.service.start, daemon=True)
        self.thread.start()

    def leads(self):
        return self.service.scheduler.lock is not None

    def stop(self, releases=True):
        if not releases:
            self.service.sync = lambda: None
        self.service.stop(wait=False)
        self.thread.join()


def until(truth):
    """Waits for `truth`; the run's own limit is that of the wait."""
    while not truth():
        time.sleep(0.005)


first = Beat()
until(first.leads)
token = client.get(LOCK)
check("acquire", token and 0 < client.pttl(LOCK) <= 1_000)
second = Beat()
until(lambda: client.llen("celery") >= 5)
check("it ticks", "tick" in client.smembers("redbeat::statics"))
check("the other waits for the lock", not second.leads())
time.sleep(1.5)
check("extensions keep a lease that is shorter", client.get(LOCK) == token and not second.leads())

first.stop()
until(second.leads)
check("a beat that stops hands over", client.get(LOCK) not in [None, token])
ticks = client.llen("celery")
until(lambda: client.llen("celery") >= ticks + 3)
check("and the other ticks", "redbeat:tick" in client.zrange("redbeat::schedule", 0, -1))

third = Beat()
token = client.get(LOCK)
watch = Stopwatch()
second.stop(releases=False)
until(third.leads)
check("a beat that dies hands over when its lease ends", watch.ms() >= 700, watch.ms())
check("to a token of its own", client.get(LOCK) not in [None, token])

app = third.service.app
entry = RedBeatSchedulerEntry("dynamic", "tock", 3_600, args=["x"], app=app).save()
known = RedBeatSchedulerEntry.from_key(entry.key, app=app)
check("an entry is saved and loaded", known.task == "tock" and known.args == ["x"])
check("with its place in the schedule", client.zscore("redbeat::schedule", entry.key) > time.time() - 60)
entry.delete()
check("and deleted", client.exists(entry.key) == 0 and client.zscore("redbeat::schedule", entry.key) is None)
third.stop()
check("release", client.exists(LOCK) == 0)
done()
