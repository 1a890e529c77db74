"""A leader that hands its lock over when it is told to stop, as in a rolling deploy."""

import math
import threading

from redlatch_client import Locks, Refused


def lead(locks: Locks, name: str, successor: str, stopping: threading.Event, work) -> None:
    with locks.lock("lock:leader", owner=name, wait=math.inf) as held:
        while not stopping.is_set():
            held.raise_if_lost()
            work(name, held.token)
        try:
            held.transfer_to(successor)
        except Refused as refused:
            print(refused)  # it does not wait: the end of the block releases the lock
