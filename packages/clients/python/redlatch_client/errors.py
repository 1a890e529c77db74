"""What can go wrong with a lock. All of it is a `LockError`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Optional, Union

from ._generated import REASONS

if TYPE_CHECKING:
    from ._core import Holder


class LockError(Exception):
    """The base of all others."""


class LockHeld(LockError):
    """Somebody else holds the lock, and the wait has ended. The text says who, why and since when, and how to break it."""

    def __init__(self, key: bytes, holder: Optional[Holder]) -> None:
        #: Who holds it; None if it was released in the meantime, or the server does not tell.
        self.holder = holder
        self.key = holder.key if holder else key.decode("utf-8", "backslashreplace")
        text = f"{shown(self.key)} is held"
        if holder:
            text += f"\n{holder}"
            if holder.token is not None:
                text += f"\nTo take it by force: redlatch break {shlex.quote(shown(self.key))} --token {holder.token}"
        super().__init__(text)

    def __reduce__(self) -> tuple[type[LockHeld], tuple[bytes, Optional[Holder]]]:
        return LockHeld, (self.key.encode(), self.holder)


class LockLost(LockError):
    """The lock is held no longer: somebody else may have it."""

    def __init__(self, key: str, token: Optional[int], reason: str, text: Optional[str] = None) -> None:
        self.key = key
        self.token = token
        #: As the server tells it, such as `broken` or `expired`. Or found here: `not-held`: the server does not know the lock.
        #: `unrenewed`: no renewal has succeeded in time; the server may still count the lock as held. `forked`: this process is a
        #: child of the one that took the lock, which may still hold it.
        self.reason = reason
        #: The REASON of LOCK.BREAK, if there is one.
        self.text = text
        super().__init__(f"{shown(key)} is lost: {REASONS.get(reason, reason)}{': ' + text if text else ''}")

    def __reduce__(self) -> tuple[type[LockLost], tuple[str, Optional[int], str, Optional[str]]]:
        return LockLost, (self.key, self.token, self.reason, self.text)


class NotSupported(LockError):
    """The server is no redlatch, and plain Redis commands cannot do this."""

    def __init__(self, what: str) -> None:
        super().__init__(what)

    def __str__(self) -> str:
        return f"{self.args[0]}: this takes a server with LOCK commands, which this one lacks"


class Refused(LockError):
    """The server refuses the request. Its text; the error of redis-py is the `__cause__`. Or nothing was sent, because the pool of
    connections of the program is full."""


class Deadlock(Refused):
    """To wait would close a circle of owners, each waiting for a lock of the next."""


class Unreachable(LockError):
    """The server cannot be asked. What was held is held until its lease ends."""


class StaleToken(LockError):
    """The database has seen a higher token: somebody else has had the lock since. The transaction must be rolled back."""


def shown(value: Union[str, bytes]) -> str:
    """A text of others, with escapes for what cannot be seen, moves the cursor or turns text around."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
