"""What a lock client decides: which request comes next, what a reply means, until when a lock is certainly held.

Owns    `Hold`, `Holder`, and the steps of taking, keeping and releasing, as generators. They yield what is to be done
        (`Ask`, `Pause`, ...) and are sent the reply, or thrown the error of redis-py. `sync.py` and `aio.py` do it.
Knows   `_terms`, `errors`; the errors of redis-py, and nothing else of it.
Time    `time.monotonic()`, seconds. A lease counts from the moment its request was sent, so a deadline here lies before the one of
        the server whatever the network did.
"""

from __future__ import annotations

import math
import os
import random
import weakref
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from hashlib import sha1
from time import monotonic
from typing import Any, NoReturn, Optional, Protocol, TypeVar, Union

from redis import exceptions as redis_errors

from ._generated import ANSWER_MAX, FORKED, NOT_HELD, RELEASED, SESSION, TRANSFERRED, UNRENEWED, WAIT_MAX
from ._terms import Key, Terms, Word, lease_ms_of, must_end_before, owner_of
from .errors import Deadlock, LockHeld, LockLost, NotSupported, Refused, Unreachable, shown

T = TypeVar("T")
#: Tries of a request that fails, also where the wait has passed.
TRIES_MIN = 3


@dataclass(slots=True)
class Ask:
    """Send a request to the server of a key, and wait for the answer."""

    words: Union[tuple[Word, ...], Callable[[], tuple[Word, ...]]]
    key: bytes
    #: How long all of it may take, with what it takes to connect. Seconds.
    timeout: float
    #: It waits for a lock: the `socket_timeout` of the client does not count.
    waits: bool = False
    #: How long its answer may take once it was sent, if that is less.
    answer: float = math.inf
    #: When it was sent: it may have waited for a connection before.
    sent: float = math.inf

    def begin(self) -> tuple[Word, ...]:
        """The words, which are sent now."""
        self.sent = monotonic()
        return self.words if isinstance(self.words, tuple) else self.words()

    def limit(self, of_client: Optional[float], left: float) -> float:
        """How long to wait for the answer if so much is left of the timeout."""
        return left if self.waits else min(left, self.answer, of_client or math.inf)


@dataclass(slots=True)
class Pause:
    """Do nothing for so many seconds."""

    seconds: float


@dataclass(slots=True)
class Reconnect:
    """Of a session: end its connection, and open another one, for at most so many seconds."""

    seconds: float


@dataclass(slots=True)
class Listen:
    """Of a session: wait until something comes on its connection, or it ends, for at most so many seconds."""

    seconds: float


Steps = Generator[Union[Ask, Pause, Reconnect, Listen], Any, T]


@dataclass(frozen=True)
class Holder:
    """Who holds a lock. What the server does not tell is None. Times are in seconds."""

    key: str
    #: The name under which it was taken; None for a value that names nobody.
    owner: Optional[str]
    #: The fencing token.
    token: Optional[int] = None
    #: When it was taken, as Unix time.
    since: Optional[float] = None
    #: For how long it is held.
    held: Optional[float] = None
    #: What is left of its lease.
    left: Optional[float] = None
    meta: Mapping[str, str] = field(default_factory=dict)
    #: `exclusive`, `shared`, `permits`, `reentrant`; `none` for a key that is no lock.
    kind: str = "exclusive"
    #: How many hold it together: this is the first of them.
    holders: int = 1
    #: How many permits it has, or how often it holds the lock.
    permits: int = 1
    #: How many wait for the lock.
    waiters: Optional[int] = None
    #: The address of its connection.
    address: Optional[str] = None

    def __str__(self) -> str:
        """A line for each thing that is known."""
        others = f" and {self.holders - 1} others" if self.holders > 1 else ""
        begun = datetime.fromtimestamp(self.since, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC") if self.since else ""
        lines = {
            "key": shown(self.key),
            "holder": (shown(self.owner) if self.owner is not None else "unknown") + others,
            "at": self.address,
            **{shown(name): shown(value) for name, value in self.meta.items()},
            "since": f"{begun}, for {self.held or 0:.1f} s" if begun else None,
            "lease": f"{self.left:.1f} s left" if self.left is not None else None,
            "token": str(self.token) if self.token is not None else None,
            "queue": f"{self.waiters} waiting" if self.waiters is not None else None,
        }
        width = max(len(name) for name in lines) + 1
        return "\n".join(f"  {name + ':':<{width}} {text}" for name, text in lines.items() if text is not None)


class HasSocket(Protocol):
    def fileno(self) -> int:
        """Its socket; -1 while it has none."""


#: The connections of sessions. A session ends with its connection, so only the process that opened it may keep it open.
sessions: weakref.WeakSet[HasSocket] = weakref.WeakSet()


def leave_sessions_to_parent() -> None:
    # A closed descriptor could soon be that of another file, which redis-py would close.
    with open(os.devnull, "rb") as nothing:
        for session in sessions:
            if session.fileno() >= 0:
                os.dup2(nothing.fileno(), session.fileno(), inheritable=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=leave_sessions_to_parent)


class Hold:
    """A lock that was granted: what is known of it, without the requests that keep it.

    It belongs to the process that took it. A child that was made by a fork has a copy, which sends nothing.
    """

    def __init__(self, terms: Terms, grant: Grant, server: Server, renews: bool) -> None:
        self._terms = terms if grant.key is None else replace(terms, keys=(grant.key,))
        self._server = server
        self._pid = os.getpid()
        #: Whether it is no lock: nobody has answered, and the program goes on without one.
        self.open = grant.why_open is not None
        self._why_open = grant.why_open
        self._lease = math.inf if self.open else terms.lease
        self._is_plain = grant.is_plain
        self._session = grant.session
        self._renews = renews
        self._reason: Optional[str] = None
        self._text: Optional[str] = None
        self._is_released = False
        #: False once its session is not to be kept any more: not before its release is done.
        self._is_kept = True
        #: A release that has failed may have given it back: one of its keys was, or an answer was lost.
        self._may_be_released = False
        #: Its program has handed it over: that it is lost is no news at the end of a block.
        self._is_handed_over = False
        #: Its program works under it no more, so it needs no time to stop.
        self._is_left = False
        #: The fencing token: higher than that of every grant before. None from a server without LOCK commands.
        self.token = grant.token
        #: Until when the lock is certainly held if nobody breaks it, in seconds of `time.monotonic()`.
        self.deadline = grant.begun + self._lease
        #: When it is lost if no renewal has succeeded by then.
        self._stops_at = self.deadline - terms.margin(self._lease)
        self._next = self._renewal_after(grant.begun)

    @property
    def key(self) -> str:
        """The key: of one of several, the one that was got; of several at once, the first."""
        return self._terms.keys[0].decode("utf-8", "backslashreplace")

    @property
    def owner(self) -> bytes:
        """The name under which the lock was taken."""
        return self._terms.owner

    def remaining(self) -> float:
        """For how many seconds the lock is certainly held if nobody breaks it; 0 once it is lost or released."""
        is_over = self._is_released or self._why_lost()
        return 0.0 if is_over else max(0.0, self.deadline - monotonic())

    def raise_if_lost(self) -> None:
        """Raises `LockLost` once the lock is lost, and in a process that has not taken it. Put it before each step that needs the lock."""
        reason = self._why_lost()
        if reason:
            raise LockLost(self.key, self.token, reason, self._text)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a hold cannot be pickled or copied: it belongs to the process that took the lock")

    def _renewal_after(self, sent: float) -> float:
        """When it is renewed after a request that began its lease: in time also if it is lost early."""
        return min(sent + self._lease / 3, (sent + self._stops_at) / 2) if self._renews else math.inf

    @property
    def _is_of_other_process(self) -> bool:
        """Whether this is a copy that a fork has made."""
        return self._pid != os.getpid()

    def _why_lost(self) -> Optional[str]:
        if self._reason or self._is_released or self.open:
            return self._reason
        if self._is_of_other_process:
            # Nobody is woken: what wakes them may have been locked at the moment of the fork.
            return FORKED
        if monotonic() >= self._stops_at:
            self._lose(UNRENEWED)
        return self._reason

    def _lose(self, reason: str, text: Optional[str] = None) -> None:
        if not self._reason and not self._is_released:
            self._text, self._reason = text, reason
            self._tell()

    def _tell(self) -> None:
        """Wakes those who wait for the loss."""

    def _renewed(self, sent: float, lease: float) -> None:
        # What has been told as lost stays lost, whatever the server says later.
        if self._why_lost():
            return
        # An earlier request may still be on its way, with a shorter lease, which the next one then puts right in time.
        shorter, self._lease = min(lease, self._lease), lease
        self.deadline = sent + lease
        self._stops_at = self.deadline - (0.0 if self._is_left else self._terms.margin(lease))
        self._next = min(self._renewal_after(sent), sent + shorter / 3) if self._renews else math.inf

    def _release_has_failed(self, failure: BaseException) -> None:
        """It is lost, unless it is certainly still held: then it ends with its lease. A session ends with its connection."""
        self._is_released, self._renews, self._next = False, False, math.inf
        if self._session:
            self._lose(SESSION)
        elif self._may_be_released or not isinstance(failure, Refused):
            self._lose(NOT_HELD)
        self._server.holds.add(self)
        # Only the first loss takes it out, which may have been before.
        if self._why_lost():
            self._server.holds.discard(self)

    @property
    def _is_over(self) -> bool:
        return self._is_released or self._why_lost() is not None


class Server:
    """What a client knows of its server, and which locks it holds there."""

    def __init__(self) -> None:
        #: It has no LOCK commands.
        self.is_plain = False
        self.holds: set[Any] = set()

    def is_told(self, channel: bytes, data: bytes) -> None:
        """A message of the channel `__lock__:key`: `lost <token> <reason> [text]`."""
        key = channel.removeprefix(LOST_CHANNEL)
        kind, token, reason, *text = data.split(b" ", 3)
        for hold in self.holds.copy():
            if kind == b"lost" and key in hold._terms.keys and token == str(hold.token).encode():
                hold._lose(reason.decode(), shown(text[0]) if text else None)

    def renew_all(self) -> None:
        """Messages may have been missed: each lock is renewed now, which shows whether it is still held."""
        for hold in self.holds.copy():
            if hold._next < math.inf:
                hold._next = min(hold._next, monotonic())

    def times_held(self, terms: Terms) -> int:
        """How often this client holds a reentrant lock."""
        return sum(hold.owner == terms.owner and hold._terms.keys == terms.keys for hold in self.holds.copy())


@dataclass(slots=True)
class Grant:
    token: Optional[int]
    #: A moment at which the lease had not begun.
    begun: float
    #: Of one of several keys: which it is.
    key: Optional[bytes] = None
    is_plain: bool = False
    session: Optional[bytes] = None
    #: Of an open hold: why it is no lock.
    why_open: Optional[str] = None


class PoolFull(redis_errors.ConnectionError):
    """The pool of connections of this program has no place left. Nothing was sent."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the pool of connections of this program is full: all {size} are in use (max_connections)")


class Budget:
    """What a call may take, counted from its start: connecting, tries and the pauses between them together.

    A request that the server does not answer, or answers with an error that passes, is repeated until the wait has passed, and
    a few times at least. All of it ends so many seconds after the wait.
    """

    def __init__(self, seconds: float, wait: float = 0.0, tries: int = TRIES_MIN) -> None:
        #: Until when the call waits for a lock.
        self.until = monotonic() + wait
        self._end = self.until + seconds
        self._tries = tries
        self._pause = 0.0
        self.failures = 0
        #: Whether any try was answered, also by an error.
        self.was_answered = False

    def left(self) -> float:
        """How long it is until the call must have ended. Seconds."""
        return max(self._end - monotonic(), 0.0)

    def wait(self) -> float:
        """How long the next request may wait for a lock."""
        return min(max(self.until - monotonic(), 0.0), WAIT_MAX)

    def limit(self, wait: float = 0.0) -> float:
        """How long a request may take that waits so long for a lock."""
        return min(wait + ANSWER_MAX, self.left())

    def after(self, error: Exception) -> Pause:
        """The pause before the next try. Raises what the caller is told if there is none."""
        self.failures += not isinstance(error, PoolFull)
        self.was_answered |= is_answer(error)
        rest = self.until - monotonic()
        if isinstance(error, PoolFull) or rest <= 0 and self.failures < self._tries:
            rest = self.left()
        if rest <= 0 or not passes(error):
            raise refusal(error) from error
        # The last pause is what is left, so that the last try is at the end of the wait.
        pause, self._pause = min(self._pause, rest), min(max(self._pause * 2, PAUSE_MIN), PAUSE_MAX)
        return Pause(pause)


def acquire(terms: Terms, server: Server, budget: Budget) -> Steps[Grant]:
    """Takes a lock, waiting for it as long as the terms say. A request whose answer is lost is sent again for the same owner."""
    while True:
        try:
            if server.is_plain and not terms.lacking:
                return (yield from _acquire_plainly(terms, budget, terms.has_own_owner or budget.failures > 0))
            if terms.is_reentrant and budget.failures:
                # The request may have been carried out: another one would count twice.
                repeated = yield from _reentered(terms, server, budget)
                if repeated:
                    return repeated
            return (yield from _acquire_natively(terms, budget))
        except CONNECTION_OR_REPLY as error:
            if not is_unknown(error):
                yield budget.after(error)
                continue
            server.is_plain = budget.was_answered = True
            if terms.lacking:
                raise NotSupported(terms.lacking) from error


def _answered(ask: Ask, budget: Budget) -> Steps[Any]:
    """Asks, and notes in the budget of the call that somebody has answered."""
    answer = yield ask
    budget.was_answered = True
    return answer


def _acquire_natively(terms: Terms, budget: Budget) -> Steps[Grant]:
    key, session = terms.keys[0], None
    if terms.delay_ms is not None:
        yield Reconnect(budget.limit())
        session = yield from _answered(Ask(("LOCK.SESSION", "ID"), key, budget.limit()), budget)
    while True:
        wait = budget.wait()
        ask = Ask(lambda: terms.request(budget.wait()), key, budget.limit(wait), waits=wait > 0)
        reply = yield from _answered(ask, budget)
        if isinstance(reply, int):
            # A request that does not wait is answered with the token alone.
            return Grant(reply, ask.sent, session=session)
        answer = fields(reply)
        got, token = next(iter(fields(answer.get(b"locks")).items()), (None, answer.get(b"token")))
        if token is not None:
            # The lease began when the wait had ended.
            begun = min(ask.sent + max(answer[b"waited"] - 1, 0) / 1000, monotonic())
            return Grant(token, begun, got, session=session)
        if wait < WAIT_MAX:
            raise LockHeld(terms.keys[0], (yield from _holder(terms.keys, fields(answer.get(b"refused")), budget)))


def _reentered(terms: Terms, server: Server, budget: Budget) -> Steps[Optional[Grant]]:
    permits = yield from _permits(terms, budget)
    if permits <= server.times_held(terms):
        return None
    words = ("LOCK.EXTEND", terms.keys[0], terms.owner, "LEASE", terms.lease_ms)
    ask = Ask(words, terms.keys[0], budget.limit())
    answer = fields((yield ask))
    return Grant(answer[b"token"], ask.sent) if answer else None


def _permits(terms: Terms, budget: Budget) -> Steps[int]:
    """How often the owner holds the lock."""
    answer = fields((yield from _answered(Ask(("LOCK.WHO", terms.keys[0]), terms.keys[0], budget.limit()), budget)))
    holders = [fields(each) for each in answer.get(b"holders") or []]
    return sum(each[b"permits"] for each in holders if each[b"owner"] == terms.owner)


def _acquire_plainly(terms: Terms, budget: Budget, may_be_ours: bool) -> Steps[Grant]:
    key, pause = terms.keys[0], POLL_MIN
    while True:
        ask = Ask(("SET", key, terms.owner, "NX", "PX", terms.lease_ms), key, budget.limit())
        is_set = yield from _answered(ask, budget)
        sent = ask.sent if is_set else math.inf
        if not is_set and may_be_ours:
            may_be_ours = False
            sent = yield from _extend_plainly(key, terms.owner, terms.lease_ms, budget)
        if sent < math.inf:
            return Grant(None, sent, is_plain=True)
        left = budget.until - monotonic()
        if left <= 0:
            raise LockHeld(key, (yield from _holder_plainly(key, budget)))
        # A part of the pause is random, so that those who wait do not ask in step.
        yield Pause(min(left, pause * random.uniform(0.5, 1)))
        pause = min(pause * 2, POLL_MAX)


def open_hold(terms: Terms, failure: Unreachable, budget: Budget) -> Grant:
    """What a call returns that nobody has answered, if the program wants it. Raises the failure if anybody has."""
    if budget.was_answered:
        raise failure
    return Grant(None, math.inf, why_open=str(failure))


def extend(hold: Hold, budget: Budget, lease_ms: Optional[int] = None) -> Steps[None]:
    """Starts the lease anew. The hold is lost if the server does not know it."""
    terms, sent = hold._terms, math.inf
    lease_ms = lease_ms or (0 if hold._session else round(hold._lease * 1000))
    lease: tuple[Word, ...] = () if hold._session else ("LEASE", lease_ms)
    for key in terms.keys:
        if hold._why_lost():
            return
        if hold._is_plain:
            begun = yield from _extend_plainly(key, terms.owner, lease_ms, budget)
        else:
            words = ("LOCK.EXTEND", key, terms.owner, *lease, "TOKEN", hold.token or 0)
            ask = Ask(words, key, budget.limit(), answer=hold._lease / 6)
            answer = fields((yield ask))
            # The owner may hold it anew.
            begun = ask.sent if answer and answer[b"token"] == hold.token else math.inf
        if begun == math.inf:
            return hold._lose(NOT_HELD)
        sent = min(sent, begun)
    hold._renewed(sent, hold._lease if hold._session else lease_ms / 1000)


def extend_now(hold: Hold, lease: Optional[float], budget: Budget) -> Steps[None]:
    """Like `extend`, for a caller that waits. `lease`: its new length in seconds, from now on."""
    _must_have_lease(hold)
    if lease is not None and not hold._is_left:
        must_end_before(hold._terms, lease)
    while True:
        hold.raise_if_lost()
        if hold._is_released:
            raise LockLost(hold.key, hold.token, RELEASED)
        try:
            yield from extend(hold, budget, None if lease is None else round(lease * 1000))
            return hold.raise_if_lost()
        except CONNECTION_OR_REPLY as error:
            yield budget.after(error)


def _must_have_lease(hold: Hold) -> None:
    if hold._session:
        raise ValueError("a session has no lease: it ends with its connection")


def leave(hold: Hold, rest: float, budget: Budget) -> Steps[None]:
    """Leaves the lock held for so many seconds; it is renewed no more."""
    _must_have_lease(hold)
    hold._renews, hold._is_left, hold._next = False, True, math.inf
    yield from extend_now(hold, max(rest, 0.001), budget)
    hold._is_released = True


def transfer(hold: Hold, owner: Key, lease: Optional[float], budget: Budget) -> Steps[Optional[int]]:
    """Hands the lock over. After a lost answer it is not asked again: the next renewal finds whether the lock is still held."""
    hold.raise_if_lost()
    if hold.open:
        raise Unreachable(f"{shown(hold.key)} is not locked: {hold._why_open}")
    key, *others = hold._terms.keys
    new = owner_of(owner)
    rest: tuple[Word, ...] = () if lease is None else ("LEASE", lease_ms_of(lease))
    if others or new == hold.owner:
        raise ValueError("only a lock of one key can be handed over" if others else f"owner: {owner!r} has the lock already")
    if hold._is_plain:
        raise NotSupported("a hand-over")
    while True:
        try:
            ask = Ask(("LOCK.TRANSFER", key, hold.owner, "TO", new, "TOKEN", hold.token or 0, *rest), key, budget.limit())
            token: Optional[int] = fields((yield ask)).get(b"token")
        except CONNECTION_OR_REPLY as error:
            if str(error).startswith("NOTHELD "):
                hold._lose(NOT_HELD)
                hold.raise_if_lost()
            if not is_answer(error) and not isinstance(error, PoolFull):
                raise refusal(error) from error
            yield budget.after(error)
        else:
            hold._is_handed_over = True
            hold._lose(TRANSFERRED)
            hold._is_released = True
            return token


def renew(hold: Hold) -> Steps[None]:
    """One renewal in the background. It never raises: what fails is tried again, until the deadline."""
    hold._next = math.inf
    try:
        yield from extend(hold, _budget_of_renewal(hold))
    except CONNECTION_OR_REPLY:
        pass
    if hold._renews and hold._next == math.inf:
        hold._next = monotonic() + min(hold._lease / 30, RETRY_MAX)


def _budget_of_renewal(hold: Hold) -> Budget:
    """What comes after the hold is lost is of no use."""
    return Budget(min(ANSWER_MAX, hold._stops_at - monotonic()))


def keep_session(hold: Hold) -> Steps[None]:
    """Keeps the connection of a session until the lock is lost or its release is done, and attaches the session to another one when it
    ends."""
    hold._next = min(hold._next, monotonic() + BEAT_MAX)
    while hold._is_kept and not hold._why_lost():
        try:
            if monotonic() < hold._next:
                yield Listen(min(hold._next - monotonic(), LISTEN_MAX))
            else:
                yield from extend(hold, _budget_of_renewal(hold))
                hold._next = min(hold._next, monotonic() + BEAT_MAX)
        except CONNECTION_OR_REPLY as error:
            # A refusal that passes leaves the connection as it is.
            if isinstance(error, redis_errors.ResponseError) and passes(error):
                yield Pause(PAUSE_MIN)
            else:
                yield from _attach(hold)


def _attach(hold: Hold) -> Steps[None]:
    key = hold._terms.keys[0]
    while hold._is_kept and not hold._why_lost():
        try:
            if hold._lease == math.inf:
                return hold._lose(SESSION)
            budget = _budget_of_renewal(hold)
            yield Reconnect(budget.limit())
            yield Ask(("LOCK.SESSION", "ATTACH", hold._session or b""), key, budget.limit())
            hold._next = monotonic()
            return
        except CONNECTION_OR_REPLY as error:
            if not passes(error):
                return hold._lose(SESSION)
            yield Pause(PAUSE_MIN)


def release(hold: Hold, seconds: float) -> Steps[bool]:
    """Releases every key. False if not all of them were held. One that is known to be lost is tried once: it ends by itself."""
    budget = Budget(seconds, tries=1 if hold._reason else TRIES_MIN)
    was_held = True
    for key in hold._terms.keys:
        was_held &= yield from _release_key(hold, key, budget)
        hold._may_be_released = True
    hold._is_kept = False
    return was_held


def _release_key(hold: Hold, key: bytes, budget: Budget) -> Steps[bool]:
    terms, failed_before = hold._terms, budget.failures
    while True:
        try:
            if hold._is_plain:
                answer, _ = yield from _run_script(RELEASE, key, budget, terms.owner)
            elif terms.is_reentrant and hold._may_be_released and (yield from _permits(terms, budget)) < hold._server.times_held(terms) + 1:
                answer = 1
            else:
                answer = yield Ask(("LOCK.RELEASE", key, terms.owner, "TOKEN", hold.token or 0), key, budget.limit())
            # A request whose answer was lost may have released it.
            return bool(answer == 1 or budget.failures > failed_before and not hold._reason)
        except CONNECTION_OR_REPLY as error:
            hold._may_be_released |= not isinstance(error, (redis_errors.ResponseError, PoolFull))
            yield budget.after(error)


def give_up(terms: Terms, server: Server, budget: Budget) -> Steps[None]:
    """Releases what an acquisition that was cancelled may have been granted. Of others, nothing is known to be this owner's."""
    if not terms.has_new_owners:
        return
    for key in terms.keys:
        try:
            if server.is_plain:
                yield from _run_script(RELEASE, key, budget, terms.owner)
            else:
                yield Ask(("LOCK.RELEASE", key, terms.owner), key, budget.limit())
        except CONNECTION_OR_REPLY:
            pass  # It ends with its lease.


def locked_by(key: bytes, server: Server, budget: Budget) -> Steps[Optional[Holder]]:
    """Who holds a key; None if there is no such key."""
    while True:
        try:
            if server.is_plain:
                return (yield from _holder_plainly(key, budget))
            return holder_of((yield Ask(("LOCK.WHO", key), key, budget.limit())))
        except CONNECTION_OR_REPLY as error:
            if is_unknown(error):
                server.is_plain = True
            else:
                yield budget.after(error)


def _holder(keys: tuple[bytes, ...], refused: dict[bytes, Any], budget: Budget) -> Steps[Optional[Holder]]:
    """Who holds what was refused: what LOCK.WHO says, or else the refusal itself."""
    try:
        for key in keys:
            found = holder_of((yield Ask(("LOCK.WHO", key), key, budget.limit())))
            if found:
                return found
    except CONNECTION_OR_REPLY:
        pass  # A user may lack the right.
    owner = refused.get(b"holder")
    left = refused.get(b"lease")
    return Holder(text(keys[0]), owner and text(owner), refused.get(b"token"), left=left and left / 1000, meta=texts(refused.get(b"meta")))


def _holder_plainly(key: bytes, budget: Budget) -> Steps[Optional[Holder]]:
    try:
        owner = yield Ask(("GET", key), key, budget.limit())
        if owner is None:
            return None
        left = yield Ask(("PTTL", key), key, budget.limit())
        return Holder(text(key), text(owner), left=left / 1000 if left >= 0 else None)
    except redis_errors.ResponseError:
        return Holder(text(key), None, kind="none")


def holder_of(reply: Any) -> Optional[Holder]:
    """The first holder in an answer of LOCK.WHO."""
    lock = fields(reply)
    holders = [fields(each) for each in lock.get(b"holders") or []]
    if not holders:
        return None
    first = holders[0]
    client = fields(first.get(b"client"))

    def seconds(name: bytes) -> Optional[float]:
        return None if first.get(name) is None else first[name] / 1000

    return Holder(
        text(lock[b"key"]),
        None if first[b"owner"] is None else text(first[b"owner"]),
        first[b"token"],
        seconds(b"since"),
        seconds(b"held"),
        seconds(b"left"),
        texts(first[b"meta"]),
        text(lock[b"kind"]),
        len(holders),
        first[b"permits"] or 1,
        lock[b"waiters"],
        text(client[b"addr"]) if client else None,
    )


def _extend_plainly(key: bytes, owner: bytes, lease_ms: int, budget: Budget) -> Steps[float]:
    """When the lease began at the earliest: infinite if the owner does not hold the lock."""
    try:
        answer, sent = yield from _run_script(EXTEND, key, budget, owner, lease_ms)
        return sent if answer == 1 else math.inf
    except redis_errors.ResponseError as error:
        if "WRONGTYPE" in str(error):
            return math.inf
        raise


def _run_script(script: str, key: bytes, budget: Budget, *words: Word) -> Steps[tuple[int, float]]:
    """The answer, and when it was asked for."""
    digest = sha1(script.encode(), usedforsecurity=False).hexdigest()
    ask = Ask(("EVALSHA", digest, 1, key, *words), key, budget.limit())
    try:
        return int((yield ask)), ask.sent
    except redis_errors.NoScriptError:
        ask = Ask(("EVAL", script, 1, key, *words), key, budget.limit())
        return int((yield ask)), ask.sent


def fields(reply: Any) -> dict[bytes, Any]:
    """A map, which RESP2 has as a list of names and values. Nothing is an empty one."""
    if isinstance(reply, dict):
        return reply
    return dict(zip(reply[::2], reply[1::2])) if reply else {}


def text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def texts(reply: Any) -> dict[str, str]:
    return {text(name): text(value) for name, value in fields(reply).items()}


def is_unknown(error: Exception) -> bool:
    """Whether the server has no LOCK commands."""
    return isinstance(error, redis_errors.ResponseError) and "unknown command" in str(error).lower()[:20]


def passes(error: Exception) -> bool:
    """Whether the same request may be served in a moment."""
    if isinstance(error, (redis_errors.AuthenticationError, redis_errors.AuthorizationError)):
        return False
    return isinstance(error, PASSING) or str(error).startswith(PASSING_WORDS)


def is_answer(error: Exception) -> bool:
    """Whether a server has said so: for redis-py, some of its answers are failures of the connection, or their cause."""
    is_said = any(isinstance(each, (redis_errors.ResponseError, *ANSWERS_OF_CONNECTIONS)) for each in (error, error.__cause__))
    return is_said or "max number of clients reached" in str(error)


def refusal(error: Exception) -> Exception:
    said = str(error) or type(error).__name__
    if isinstance(error, redis_errors.ResponseError):
        return Deadlock(said) if said.startswith("DEADLOCK") else Refused(said)
    if isinstance(error, PoolFull):
        return Refused(said)
    return Unreachable(said)


#: What drivers throw into the generators.
CONNECTION_OR_REPLY = (redis_errors.RedisError, redis_errors.RedisClusterException, OSError)
PASSING = (
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    OSError,
    redis_errors.OutOfMemoryError,
    redis_errors.ReadOnlyError,
    redis_errors.TryAgainError,
    redis_errors.AskError,
    redis_errors.MovedError,
    redis_errors.ClusterDownError,
    redis_errors.RedisClusterException,
    redis_errors.MasterDownError,
)
ANSWERS_OF_CONNECTIONS = (redis_errors.AuthenticationError, redis_errors.AuthorizationError, redis_errors.BusyLoadingError)
PASSING_WORDS = ("BUSY ", "QUARANTINE ", "MISCONF ", "SHUTDOWN ", "UNBLOCKED the server ")
#: The pauses between the tries of a request that fails, after the first one.
PAUSE_MIN, PAUSE_MAX = 0.05, 2.0
#: The pauses between the requests of a wait for a lock of a plain server.
POLL_MIN, POLL_MAX = 0.02, 0.5
#: The longest pause after a renewal that failed.
RETRY_MAX = 1.0
#: A session is looked at so often at least; its connection says by itself that it has ended.
BEAT_MAX, LISTEN_MAX = 10.0, 0.5
LOST_CHANNEL = b"__lock__:"
RELEASE = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end\nreturn redis.call('del', KEYS[1])\n"
EXTEND = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end\nreturn redis.call('pexpire', KEYS[1], ARGV[2])\n"
