"""redlock-py on one server: SET NX PX, and EVAL for every release."""

import threading

import redis
from redlock import Lock, Redlock

from checks import HOST, LEASE_MS, PORT, Stopwatch, check, done, race

client = redis.Redis(host=HOST, port=PORT)
address = {"host": HOST, "port": PORT, "db": 0}
hasty = Redlock([address], retry_count=1, retry_delay=0.001)
patient = Redlock([address], retry_count=2_000, retry_delay=0.005)

held = hasty.lock("stock", 10_000)
check("acquire", held and 0 < held.validity <= 10_000 and client.get("stock") == held.key, held)
check("contended acquire is refused", not hasty.lock("stock", 10_000))

hasty.unlock(Lock(0, "stock", b"not the holder's"))
check("release by a non-owner changes nothing", client.get("stock") == held.key)

timer = threading.Timer(0.05, hasty.unlock, [held])
timer.start()
second = patient.lock("stock", 10_000)
timer.join()
check("contended acquire waits for the release", second and second.key != held.key)
hasty.unlock(held)
check("a second release changes nothing", client.get("stock") == second.key)
patient.unlock(second)
check("release", client.exists("stock") == 0)

watch = Stopwatch()
lapsed = hasty.lock("lease", LEASE_MS)
heir = patient.lock("lease", 10_000)
check("expiry hands over", lapsed and heir)
check("not before the lease ended", watch.ms() >= LEASE_MS, watch.ms())
hasty.unlock(lapsed)
check("the lapsed holder cannot release", client.get("lease") == heir.key)
patient.unlock(heir)


def round_of(critical):
    lock = patient.lock("race", 10_000)
    critical()
    patient.unlock(lock)


race(round_of)
done()
