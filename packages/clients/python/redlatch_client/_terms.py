"""What a lock is taken for, and the calls that say so: the same for threads and for asyncio."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, Optional, TypeVar, Union

from ._generated import KEYS_MAX, LEASE_DEFAULT, LEASE_MAX, META_BYTES_MAX, META_FIELDS_MAX, OWNER_BYTES_MAX, PERMITS_MAX, PRIORITY_MAX

Word = Union[str, bytes, int]
Key = Union[str, bytes]
#: How one of several keys is taken: with other readers, or `(n, limit)`, n of a semaphore's permits.
Mode = Union[Literal["shared"], tuple[int, int]]
Modes = Union[Mapping[str, Mode], Mapping[bytes, Mode]]
L = TypeVar("L")


class Builder(Generic[L]):
    """Makes locks of one kind."""

    def lock(
        self,
        key: Key,
        *,
        lease: Optional[float] = None,
        wait: float = 0.0,
        shared: bool = False,
        permits: Optional[tuple[int, int]] = None,
        reentrant: bool = False,
        session: bool = False,
        delay: float = 0.0,
        meta: Optional[Mapping[str, str]] = None,
        owner: Optional[Key] = None,
        renew: bool = True,
        stop_before: Optional[float] = None,
        priority: int = 0,
    ) -> L:
        """The lock of a key. Nothing is sent before it is taken: by `with`, or by `acquire()`.

        lease: seconds until the lock ends if it is neither renewed nor released. Default: 30.
        wait: seconds to wait for a lock that is held, first come, first served; `math.inf` without a limit.
        shared: with other readers. permits: `(n, limit)`, n of a semaphore's. reentrant: this lock, or this owner, may take it again.
        session: it ends with its connection, and `delay` seconds after that, instead of with a lease.
        meta: what those who ask for the holder see, as `{"reason": "release 4.2"}`.
        owner: who knows it holds the lock, too. Default: a random one for each acquisition.
        renew: whether it is renewed in the background, at each third of the lease.
        stop_before: how many seconds before its deadline the hold is lost, if no renewal has succeeded by then: the time to stop. Default:
        a tenth of the lease, of a session a tenth of its `delay`, and one second at most.
        priority: 0 to 9. A higher one goes ahead of requests that wait already, but not of those that came much earlier.

        Raises `ValueError` or `TypeError` for arguments that no server would grant.
        """
        kinds = kinds_of(shared, permits, reentrant)
        return self._lock(terms_of([key], lease, wait, kinds, session, delay, meta, owner, stop_before, priority), renew)

    def all(
        self,
        keys: Iterable[Key],
        *,
        lease: Optional[float] = None,
        wait: float = 0.0,
        modes: Optional[Modes] = None,
        owner: Optional[Key] = None,
        renew: bool = True,
        stop_before: Optional[float] = None,
        priority: int = 0,
    ) -> L:
        """The locks of several keys, taken all or none, with one token. A key that is named twice counts once.

        modes: how each key is taken: `"shared"`, or `(n, limit)` for permits. A key without a mode is exclusive. Others: as of `lock`.
        """
        terms = terms_of(keys, lease, wait, owner=owner, stop_before=stop_before, priority=priority, modes=modes)
        return self._lock(terms, renew)

    def any_of(
        self,
        keys: Iterable[Key],
        *,
        lease: Optional[float] = None,
        wait: float = 0.0,
        modes: Optional[Modes] = None,
        owner: Optional[Key] = None,
        renew: bool = True,
        stop_before: Optional[float] = None,
        priority: int = 0,
    ) -> L:
        """The lock of one of several keys: the first in this order that is free. With `wait`, the first that becomes free.

        `key` of the hold says which it is. Options as of `all`; with an `owner` that holds one of the keys, it is that one.
        """
        terms = terms_of(keys, lease, wait, owner=owner, stop_before=stop_before, priority=priority, modes=modes, takes_one=True)
        return self._lock(terms, renew)

    def _lock(self, terms: Terms, renew: bool) -> L:
        raise NotImplementedError


@dataclass(slots=True)
class Terms:
    """What a lock is taken for. Made by `terms_of`, which checks it."""

    keys: tuple[bytes, ...]
    owner: bytes
    has_own_owner: bool
    lease_ms: int
    wait: float
    kind: tuple[Word, ...] = ()
    meta: tuple[str, ...] = ()
    delay_ms: Optional[int] = None
    stop_before: Optional[float] = None
    priority: int = 0
    #: How several keys are taken, as words of the request.
    modes: tuple[Word, ...] = ()
    #: Whether one of several keys is taken, and not all of them.
    takes_one: bool = False
    pid: int = field(default_factory=os.getpid)

    @property
    def has_new_owners(self) -> bool:
        """Whether each acquisition has an owner of its own: no other is granted a lock under it."""
        return not self.has_own_owner and not self.is_reentrant

    def anew(self) -> Terms:
        """The terms of one acquisition."""
        if self.has_new_owners:
            return replace(self, owner=random_owner())
        if self.is_reentrant and not self.has_own_owner and self.pid != os.getpid():
            # A reentrant lock that a fork has copied is one of another owner than that of the parent.
            return replace(self, owner=b"%s-%d" % (self.owner, os.getpid()))
        return self

    @property
    def is_reentrant(self) -> bool:
        return self.kind == ("REENTRANT",)

    @property
    def lease(self) -> float:
        """For how long the lock is certainly held after a sign of life. Infinite for a session that ends with its connection."""
        return self.lease_ms / 1000 if self.delay_ms is None else self.delay_ms / 1000 or math.inf

    def margin(self, lease: float) -> float:
        """How long before its deadline a hold with such a lease is lost. Seconds."""
        return min(lease / 10, STOP_BEFORE_MAX) if self.stop_before is None else self.stop_before

    @property
    def lacking(self) -> Optional[str]:
        """What a server without LOCK commands cannot do of it."""
        features = {
            "one of several keys": self.takes_one,
            "several keys at once": len(self.keys) > 1,
            f"{str(self.kind[0]).lower()} locks" if self.kind else "": bool(self.kind),
            "sessions": self.delay_ms is not None,
            "meta": bool(self.meta),
            "priority": self.priority > 0,
        }
        return next((name for name, is_asked in features.items() if is_asked), None)

    def request(self, wait: float) -> tuple[Word, ...]:
        """The words of LOCK.ACQUIRE, or of LOCK.MACQUIRE for several keys."""
        head: tuple[Word, ...] = ("LOCK.ACQUIRE", *self.keys)
        if len(self.keys) > 1:
            head = ("LOCK.MACQUIRE", len(self.keys), *self.keys)
        count: tuple[Word, ...] = ("ANY", 1) if self.takes_one else ()
        term: tuple[Word, ...] = ("LEASE", self.lease_ms)
        if self.delay_ms is not None:
            term = ("SESSION", "DELAY", self.delay_ms)
        waits: tuple[Word, ...] = ("WAIT", math.ceil(wait * 1000)) if wait else ("JUSTTOKEN",)
        if self.takes_one and not wait:
            # Such a reply would have keys where a refusal has names.
            waits = ()
        priority: tuple[Word, ...] = ("PRIORITY", self.priority) if self.priority else ()
        meta = ("META", *self.meta) if self.meta else ()
        return (*head, self.owner, *count, *self.modes, *term, *waits, "WHY", *priority, *self.kind, *meta)


def terms_of(
    keys: Iterable[Key],
    lease: Optional[float] = None,
    wait: float = 0.0,
    kinds: Sequence[tuple[Word, ...]] = (),
    session: bool = False,
    delay: float = 0.0,
    meta: Optional[Mapping[str, str]] = None,
    owner: Optional[Key] = None,
    stop_before: Optional[float] = None,
    priority: int = 0,
    modes: Optional[Modes] = None,
    takes_one: bool = False,
) -> Terms:
    """Raises `ValueError` or `TypeError` for what no server would grant."""
    named = keys_of(keys)
    modes_of_keys = modes_of(named, modes or {})
    if len(named) == 1:
        kinds, modes_of_keys, takes_one = [*kinds, *modes_of_keys.values()], {}, False
    if len(kinds) > 1:
        raise ValueError("a lock is one of shared, permits and reentrant")
    if session and lease is not None or delay and not session:
        raise ValueError("a session has no lease: it ends with its connection, and `delay` is of sessions only")
    lease_ms = lease_ms_of(LEASE_DEFAULT if lease is None else lease)
    if wait < 0 or delay < 0 or math.isnan(wait + delay):
        raise ValueError(f"wait {wait}, delay {delay}: seconds, not negative")
    if not isinstance(priority, int) or not 0 <= priority <= PRIORITY_MAX:
        raise ValueError(f"priority: {priority!r}, a whole number from 0 to {PRIORITY_MAX}")
    name = None if owner is None else owner_of(owner)
    terms = Terms(named, name or random_owner(), name is not None, lease_ms, wait, stop_before=stop_before, priority=priority)
    terms.kind, terms.meta = kinds[0] if kinds else (), meta_of(meta or {})
    terms.delay_ms = round(delay * 1000) if session else None
    terms.takes_one = takes_one
    terms.modes = tuple(word for index, key in enumerate(named, 1) if key in modes_of_keys for word in ("MODE", index, *modes_of_keys[key]))
    must_end_before(terms, terms.lease)
    return terms


def keys_of(keys: Iterable[Key]) -> tuple[bytes, ...]:
    """Each key once, as the server counts them. Raises `ValueError` or `TypeError` for none, an empty one, or too many."""
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"keys: {keys!r}, a list of them")
    named = tuple(dict.fromkeys(word_of("key", key) for key in keys))
    if not 0 < len(named) <= KEYS_MAX:
        raise ValueError(f"a lock needs a key, and has at most {KEYS_MAX}, not {len(named)}")
    return named


def kinds_of(shared: bool, permits: Optional[tuple[int, int]], reentrant: bool) -> list[tuple[Word, ...]]:
    kinds: list[tuple[Word, ...]] = []
    kinds += [("SHARED",)] if shared else []
    kinds += [("REENTRANT",)] if reentrant else []
    kinds += [permits_of(*permits)] if permits is not None else []
    return kinds


def modes_of(named: tuple[bytes, ...], modes: Modes) -> dict[bytes, tuple[Word, ...]]:
    """The words for each key that has a mode. Raises `ValueError` for a key that is not named, and for what is no mode."""
    words: dict[bytes, tuple[Word, ...]] = {}
    for key, mode in modes.items():
        if word_of("modes", key) not in named:
            raise ValueError(f"modes: {key!r} is none of the keys")
        if mode != "shared" and not isinstance(mode, tuple):
            raise ValueError(f"modes: {key!r} is {mode!r}, not 'shared' or a tuple of permits and their limit")
        words[word_of("modes", key)] = ("SHARED",) if mode == "shared" else permits_of(*mode)
    return words


def meta_of(meta: Mapping[str, str]) -> tuple[str, ...]:
    pairs = tuple(text for pair in meta.items() for text in pair)
    size = sum(len(text.encode()) for text in pairs)
    if size > META_BYTES_MAX or len(pairs) > 2 * META_FIELDS_MAX:
        raise ValueError(f"meta: {size} bytes in {len(pairs) // 2} fields, at most {META_BYTES_MAX} in {META_FIELDS_MAX}")
    return pairs


def owner_of(owner: Key) -> bytes:
    """Raises `ValueError` or `TypeError` for what is no owner."""
    name = word_of("owner", owner)
    if len(name) > OWNER_BYTES_MAX:
        raise ValueError(f"owner: {len(name)} bytes, at most {OWNER_BYTES_MAX}")
    return name


def lease_ms_of(lease: float) -> int:
    """Raises `ValueError` for what is no lease. Seconds."""
    if not 0.001 <= lease <= LEASE_MAX:
        raise ValueError(f"lease: {lease}, 0.001 to {LEASE_MAX:.0f} seconds")
    return round(lease * 1000)


def word_of(what: str, value: Key) -> bytes:
    """Raises `TypeError` for what is neither text nor bytes, and `ValueError` for an empty one."""
    if not isinstance(value, (str, bytes)):
        raise TypeError(f"{what}: {value!r}, a str or bytes")
    if not value:
        raise ValueError(f"{what}: not empty")
    return value.encode() if isinstance(value, str) else value


def permits_of(count: int, limit: int) -> tuple[Word, ...]:
    if not (isinstance(count, int) and isinstance(limit, int) and 0 < count <= limit <= PERMITS_MAX):
        raise ValueError(f"permits: ({count!r}, {limit!r}), whole numbers, of which the first is 1 to the second, which is {PERMITS_MAX} at most")
    return "PERMITS", count, "OF", limit


def must_end_before(terms: Terms, lease: float) -> None:
    """Raises `ValueError` for a lease that would be lost as soon as it begins."""
    if not 0 <= terms.margin(lease) < lease:
        raise ValueError(f"stop_before: {terms.margin(lease)} s, not negative, and less than the lease, {lease} s")


def wants_open(on_unavailable: str) -> bool:
    """Whether a call that nobody answers returns an open hold. Raises `ValueError` for neither of the choices."""
    if on_unavailable not in ("closed", "open"):
        raise ValueError(f"on_unavailable: {on_unavailable!r}, closed or open")
    return on_unavailable == "open"


def budget_of(seconds: float) -> float:
    """Raises `ValueError` for what is no budget of a call."""
    if not 0 < seconds < math.inf:
        raise ValueError(f"budget: {seconds}, more than 0 seconds, and not without a limit")
    return seconds


def random_owner() -> bytes:
    return secrets.token_hex(16).encode()


#: The longest `stop_before` that is not chosen. Seconds.
STOP_BEFORE_MAX = 1.0
