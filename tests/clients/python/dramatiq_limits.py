"""dramatiq: its mutex and other rate limiters on WATCH and MULTI, its barrier on BRPOPLPUSH, a worker."""

import threading
import time

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.rate_limits import Barrier, BucketRateLimiter, ConcurrentRateLimiter, WindowRateLimiter
from dramatiq.rate_limits.backends import RedisBackend
from dramatiq.rate_limits.rate_limiter import RateLimitExceeded

from checks import HOST, LEASE_MS, PORT, Stopwatch, Till, check, done, later, race, refused

client = redis.Redis(host=HOST, port=PORT)
backend = RedisBackend(client=client)


def enter(limiter):
    with limiter.acquire():
        pass


def wait_for(limiter, critical):
    """What its users do instead of waiting: they come again."""
    while True:
        with limiter.acquire(raise_on_failure=False) as acquired:
            if acquired:
                return critical()
        time.sleep(0.003)


def mutex(key="stock", **options):
    return ConcurrentRateLimiter(backend, key, **options)


with mutex().acquire() as acquired:
    check("acquire", acquired and 899_000 < client.pttl("stock") <= 900_000)
    check("contended acquire is refused", refused(RateLimitExceeded, lambda: enter(mutex())))
    with mutex().acquire(raise_on_failure=False) as again:
        check("or says so", not again)
check("release", client.get("stock") == b"0")

holding = mutex().acquire()
holding.__enter__()
released = later(0.05, lambda: holding.__exit__(None, None, None))
check("contended acquire comes again until the release", wait_for(mutex(), lambda: True))
released.join()

watch = Stopwatch()
check("acquire a short lease", mutex("lease", ttl=LEASE_MS)._acquire())
wait_for(mutex("lease"), lambda: check("expiry hands over", watch.ms() >= LEASE_MS, watch.ms()))

seats = ConcurrentRateLimiter(backend, "seats", limit=3)
check("three of three seats", all([seats._acquire() for _ in range(3)]) and client.get("seats") == b"3")
check("not a fourth", refused(RateLimitExceeded, lambda: enter(seats)))
seats._release()
check("until one is given back", seats._acquire())

bucket = BucketRateLimiter(backend, "bucket", limit=2, bucket=60_000)
if time.time() % 60 > 58:
    # The third would fall into the next minute, whose bucket is empty.
    time.sleep(2)
check("two of a bucket of two", bucket._acquire() and bucket._acquire() and not bucket._acquire())
window = WindowRateLimiter(backend, "window", limit=2, window=30)
check("two in a window of two", window._acquire() and window._acquire() and not window._acquire())

race(lambda critical: wait_for(mutex("race"), critical))

barrier = Barrier(backend, "barrier", ttl=30_000)
check("a barrier is made once", barrier.create(parties=3) and not barrier.create(parties=3))
check("two of three wait", not barrier.wait(block=False) and client.get("barrier") == b"2")
passed = []
waiting = threading.Thread(target=lambda: passed.append(barrier.wait(timeout=10_000)))
waiting.start()
while client.get("barrier") != b"1":
    time.sleep(0.005)
watch = Stopwatch()
check("the last one passes", not passed and barrier.wait())
waiting.join()
check("and wakes who waits", passed == [True] and watch.ms() < 5_000, (passed, watch.ms()))
alone = Barrier(backend, "alone", ttl=30_000)
alone.create(parties=2)
check("a wait that is too short is over in time", not alone.wait(timeout=1_000))

broker = RedisBroker(client=client)
dramatiq.set_broker(broker)
till = Till()


@dramatiq.actor(max_retries=200, min_backoff=5, max_backoff=20)
def count():
    with mutex("counting").acquire():
        seen = till.enter()
        time.sleep(0.001)
        till.leave(seen)


worker = dramatiq.Worker(broker, worker_threads=4, worker_timeout=50)
worker.start()
for _ in range(12):
    count.send()
broker.join(count.queue_name, timeout=30_000)
worker.join()
worker.stop()
till.check(12)
done()
