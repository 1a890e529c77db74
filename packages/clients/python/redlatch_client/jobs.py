"""Jobs that a scheduler starts in several processes, and of which one may run: APScheduler, Celery beat, and others."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, Optional, ParamSpec, TypeVar

from ._terms import Key
from .errors import LockError, LockHeld
from .sync import Locks

P = ParamSpec("P")
T = TypeVar("T")


def once(locks: Locks, key: Key, *, at_least: float = 0.0, **options: Any) -> Callable[[Callable[P, T]], Callable[P, Optional[T]]]:
    """Decorates a job: it runs under the lock of the key, and returns None without having run where another process has it.

    at_least: for how many seconds the lock stays held after it was taken, so that a process whose clock is behind does not run the
    job once more. Further options are those of `Locks.lock`.

    Raises what the job raises, `LockLost` if the lock was lost while it ran, and `Unreachable` or `Refused` if it was not asked for.
    """

    def decorate(job: Callable[P, T]) -> Callable[P, Optional[T]]:
        @functools.wraps(job)
        def run(*arguments: P.args, **named: P.kwargs) -> Optional[T]:
            try:
                held = locks.lock(key, **options).acquire()
            except LockHeld as refusal:
                logger.info("%s is not run here: %s", job.__name__, refusal)
                return None
            begun = monotonic()
            try:
                result = job(*arguments, **named)
                if not held._is_of_other_process:
                    held.raise_if_lost()
                return result
            finally:
                rest = begun + at_least - monotonic()
                try:
                    if rest > 0 and not held.lost.is_set():
                        held.leave(rest)
                    else:
                        held.release()
                except LockError as failure:
                    logger.warning("%s ends with its lease: %s", held.key, failure)

        return run

    return decorate


logger = logging.getLogger("redlatch_client")
