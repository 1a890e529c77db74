"""portalocker's RedisLock: a subscription is the lock; a holder that does not answer is killed."""

import os
import signal
import subprocess
import sys
import threading

import portalocker
import redis
from portalocker import LockFlags
from portalocker.exceptions import AlreadyLocked, LockLostError

from checks import HOST, PORT, Stopwatch, check, done, later, race_under, refused

client = redis.Redis(host=HOST, port=PORT, decode_responses=True)


def lock(channel, **options):
    given = {"timeout": 20, "check_interval": 0.01, "thread_sleep_time": 0.01, "interrupt_on_lost": False}
    server = {"host": HOST, "port": PORT}
    return portalocker.RedisLock(channel, redis_kwargs=server, **{**given, **options})


def modes(channel):
    return sorted(holder.mode.value for holder in lock(channel).probe())


if sys.argv[1:] == ["hold"]:
    # A holder of its own process, which the other one stops.
    with lock("frozen"):
        print("held", flush=True)
        sys.stdin.read()
    sys.exit()

first, second = lock("stock"), lock("stock")
with first:
    check("acquire", client.pubsub_numsub("stock") == [("stock", 1)] and modes("stock") == ["exclusive"])
    hasty = lock("stock", fail_when_locked=True)
    check("contended acquire is refused", refused(AlreadyLocked, hasty.acquire))
    check("a wait that is too short is refused", refused(AlreadyLocked, lock("stock", timeout=0.1).acquire))
    second.release()
    check("release by a non-owner changes nothing", modes("stock") == ["exclusive"])
    first.ensure_held()
check("release", modes("stock") == [])

first.acquire()
released = later(0.1, first.release)
watch = Stopwatch()
second.acquire()
check("contended acquire waits for the release", watch.ms() >= 100, watch.ms())
released.join()
second.release()

readers = [lock("shelf", flags=LockFlags.SHARED) for _ in range(2)]
for reader in readers:
    reader.acquire()
check("two share it", modes("shelf") == ["shared", "shared"])
check("a writer is refused", refused(AlreadyLocked, lock("shelf", fail_when_locked=True).acquire))
released = [later(0.1, reader.release) for reader in readers]
writer = lock("shelf")
watch = Stopwatch()
writer.acquire()
check("or waits for both", watch.ms() >= 100 and modes("shelf") == ["exclusive"], watch.ms())
late = lock("shelf", flags=LockFlags.SHARED, fail_when_locked=True)
check("a reader is refused while it writes", refused(AlreadyLocked, late.acquire))
writer.release()
for timer in released:
    timer.join()

fences = []
for _ in range(3):
    with lock("fenced", fencing=True) as held:
        fences.append(held.fence_token)
check("fences only grow", fences == [1, 2, 3] and client.get("fenced-fence") == "3", fences)

gone = threading.Event()
# A check that is not answered within the interval loses the lock: a busy machine must have time for it.
robbed = lock("robbed", on_lost=lambda lost: gone.set(), self_check_interval=1, unavailable_timeout=5)
robbed.acquire()
[ours] = [one for one in client.client_list(_type="pubsub") if one["name"] == robbed.client_name]
check("a self-check keeps it", not gone.wait(2.5) and not robbed.lost)
check("its subscription can be killed", client.client_kill_filter(_id=ours["id"]) == 1)
check("which the holder notices", gone.wait(10) and refused(LockLostError, robbed.ensure_held))
robbed.release()
with lock("robbed"):
    check("and another takes over", modes("robbed") == ["exclusive"])

holder = subprocess.Popen(
    [sys.executable, __file__, "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
check("a process holds it", holder.stdout.readline() == "held\n")
os.kill(holder.pid, signal.SIGSTOP)
heir = lock("frozen", unavailable_timeout=0.3)
watch = Stopwatch()
heir.acquire()
check("a holder that does not answer is replaced", watch.ms() >= 300 and modes("frozen") == ["exclusive"])
heir.release()
holder.kill()
holder.wait()
race_under(lambda: lock("race"))
done()
