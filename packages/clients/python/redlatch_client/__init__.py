"""Locks of redlatch for programs that use redis-py. `redlatch_client.aio` has the same for asyncio."""

from ._core import Holder
from .errors import Deadlock, LockError, LockHeld, LockLost, NotSupported, Refused, StaleToken, Unreachable
from .sync import Held, Lock, Locks, Lost

__all__ = [
    "Deadlock",
    "Held",
    "Holder",
    "Lock",
    "LockError",
    "LockHeld",
    "LockLost",
    "Locks",
    "Lost",
    "NotSupported",
    "Refused",
    "StaleToken",
    "Unreachable",
]
