"""Locks over a client of redis-py, for asyncio: as `redlatch_client`, with `async with` and `await`.

Owns    a timer, the tasks that renew and those of sessions, and one that listens for losses. A `Locks` is of one event loop.
Knows   `_core`, which decides; here its steps are done.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from inspect import isawaitable
from time import monotonic
from types import TracebackType
from typing import Any, Optional, TypeVar, Union

import redis.asyncio as redis
from redis import exceptions as redis_errors
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from . import _core
from ._core import Ask, Budget, Hold, Holder, Listen, Pause, PoolFull, Reconnect, Server, Steps
from ._fence import fence
from ._generated import ANSWER_MAX, BUDGET_DEFAULT, NOT_HELD
from ._terms import Builder, Key, Terms, budget_of, wants_open, word_of
from .errors import LockError, LockLost, Unreachable, shown

T = TypeVar("T")
#: A connection, and how to give it back.
Taken = tuple[Any, Callable[[], Awaitable[None]]]


class Locks(Builder["Lock"]):
    """The locks of a server, over a client that you have: `redis.asyncio.Redis`, `RedisCluster`, or a Sentinel's `master_for`.

    Requests take connections from the pool of that client, each for its time only, and a wait for all of it. One connection more
    listens for losses. May be made before a fork, and used after it, but not both before and after.

    budget: how long a call may take beside its `wait`, in seconds: connecting, all tries and the pauses between them together.
    on_unavailable: what a call does that no server has answered: `closed`: it raises `Unreachable`; `open`: it returns an open hold,
    which is no lock.
    """

    def __init__(
        self, client: Union[redis.Redis, redis.RedisCluster], *, budget: float = BUDGET_DEFAULT, on_unavailable: str = "closed"
    ) -> None:
        self._budget = budget_of(budget)
        self._wants_open = wants_open(on_unavailable)
        #: How many open holds were returned.
        self.opened = 0
        self._connections = Connections(client)
        self._server = Server()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: Optional[asyncio.TimerHandle] = None
        self._wakes_at = math.inf
        self._listens = False
        self._has_ended = False
        #: The process that has taken the first lock.
        self._pid: Optional[int] = None

    def _lock(self, terms: Terms, renew: bool) -> Lock:
        return Lock(self, terms, renew)

    async def locked_by(self, key: Key) -> Optional[Holder]:
        """Who holds a key; None if nobody does. Raises `Unreachable` or `Refused`."""
        return await self._run(_core.locked_by(word_of("key", key), self._server, Budget(self._budget)))

    async def aclose(self) -> None:
        """Ends the tasks. Locks that are held are not renewed any more, and sessions end. The client stays open."""
        self._has_ended = True
        if self._is_of_other_process:
            return
        for hold in self._server.holds.copy():
            hold._next = math.inf
        self._connections.close()
        while self._tasks:
            # Again and again: see `is_cancelled`.
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks.copy(), timeout=CANCEL_AGAIN)

    async def _acquire(self, terms: Terms, renew: bool) -> Held:
        if self._has_ended:
            raise RuntimeError("these locks are closed")
        self._pid = self._pid or os.getpid()
        if self._is_of_other_process:
            raise RuntimeError("these locks are those of another process, as its event loop is: make a client and `Locks` after the fork")
        session = Session(self._connections, terms.keys[0]) if terms.delay_ms is not None else None
        budget = Budget(self._budget, terms.wait)
        try:
            grant = await self._run(_core.acquire(terms, self._server, budget), session)
        except BaseException as error:
            if session:
                await session.close()
            if not isinstance(error, Exception):
                self._spawn(self._run(_core.give_up(terms, self._server, Budget(self._budget))))
            if not self._wants_open or not isinstance(error, Unreachable):
                raise
            return self._open(terms, _core.open_hold(terms, error, budget))
        held = Held(self, terms, grant, renew)
        self._server.holds.add(held)
        self._wake_for(held)
        if session:
            self._spawn(self._keep_session(held, session))
        if held.token is not None and not self._listens and hasattr(self._connections.client, "pubsub"):
            self._listens = True
            self._spawn(self._listen())
        return held

    def _open(self, terms: Terms, grant: _core.Grant) -> Held:
        held = Held(self, terms, grant, renew=False)
        self.opened += 1
        logger.warning("%s is not locked, and the program goes on without it: %s", shown(held.key), grant.why_open)
        return held

    @property
    def _is_of_other_process(self) -> bool:
        """Whether this is a copy that a fork has made, with an event loop that does not run here."""
        return self._pid not in (None, os.getpid())

    async def _run(self, steps: Steps[T], session: Optional[Session] = None) -> T:
        return await run(steps, self._connections, session)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _wake_for(self, held: Held) -> None:
        """Wakes when the lock is to be renewed, or it is lost by its deadline. What is planned for locks that are gone stays planned: it
        is less than a timer for each lock."""
        at = held._stops_at if held._session else min(held._next, held._stops_at)
        if at < self._wakes_at:
            self._wakes_at = at
            if self._timer:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(at - monotonic(), self._wake)

    def _wake(self) -> None:
        self._wakes_at = math.inf
        for held in self._server.holds.copy():
            if held._is_over:
                continue
            if held._next <= monotonic() and not held._session:
                held._next = math.inf
                self._spawn(self._renew(held))
            self._wake_for(held)

    async def _renew(self, held: Held) -> None:
        async with held._extending:
            await self._run(_core.renew(held))
        self._wake_for(held)

    async def _keep_session(self, held: Held, session: Session) -> None:
        try:
            steps = _core.keep_session(held)
            await run(steps, self._connections, session, is_ours=True)
        finally:
            await session.close()

    async def _listen(self) -> None:
        """Subscribes to all losses, which are few. Without the right to it, losses are found out by the next renewal."""
        async with self._connections.client.pubsub() as messages:
            while not is_cancelled():
                try:
                    if not messages.subscribed:
                        await messages.psubscribe(f"{_core.LOST_CHANNEL.decode()}*")
                    message = await messages.get_message(timeout=LISTEN_MAX)
                except (redis_errors.NoPermissionError, redis_errors.AuthenticationError) as error:
                    logger.warning("losses of locks are found out by renewals only: %s", error)
                    return
                except (*_core.CONNECTION_OR_REPLY, UnicodeError):
                    await asyncio.sleep(_core.RETRY_MAX)
                    continue
                if message and message["type"] == "psubscribe":
                    self._server.renew_all()
                    self._wake()
                elif message and message["type"] == "pmessage":
                    encode = messages.encoder.encode
                    self._server.is_told(encode(message["channel"]), encode(message["data"]))


class Lock:
    """A lock that can be taken. `async with locks.lock("stock") as held:` takes and releases it."""

    def __init__(self, locks: Locks, terms: Terms, renew: bool) -> None:
        self._locks = locks
        self._terms = terms
        self._renew = renew
        self._cancels = False
        self._entered: dict[Optional[asyncio.Task[Any]], list[Held]] = {}

    def cancelling(self) -> Lock:
        """The same lock, whose `async with` block is cancelled when the lock is lost, and raises `LockLost` then."""
        lock = Lock(self._locks, self._terms, self._renew)
        lock._cancels = True
        return lock

    async def acquire(self) -> Held:
        """Takes the lock, or waits for it.

        Raises `LockHeld` when the wait has ended, `NotSupported` on a server without LOCK commands, `Refused`, `Deadlock`, or
        `Unreachable`. A request whose answer is lost, or that a server refuses for a moment, is repeated until `wait` has passed, and
        three times at least, but not beyond the budget of these `Locks`. If it is cancelled while it waits, it leaves the queue.
        """
        return await self._locks._acquire(self._terms.anew(), self._renew)

    async def locked_by(self) -> Optional[Holder]:
        """Who holds the (first) key; None if nobody does."""
        return await self._locks.locked_by(self._terms.keys[0])

    async def __aenter__(self) -> Held:
        held = await self.acquire()
        task = asyncio.current_task()
        self._entered.setdefault(task, []).append(held)
        held._task = task if self._cancels else None
        return held

    async def __aexit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], at: Optional[TracebackType]) -> None:
        """Releases. Raises `LockLost` if the lock was lost in the block, unless that ends with an exception of its own. A child that
        was made by a fork in the block does nothing: its parent has the lock."""
        if self._locks._is_of_other_process:
            return
        task = asyncio.current_task()
        mine = self._entered[task]
        held = mine.pop()
        if not mine:
            del self._entered[task]
        was_lost, is_gone = held.lost.is_set() and (not held._is_handed_over or held._has_cancelled), False
        is_cancelled_here = held._has_cancelled and await held._is_only_canceller(error)
        is_cancelled_by_others = held._has_cancelled and not is_cancelled_here
        held._task = None
        try:
            is_gone = not held._is_released and not await held.release() and not held.open
        except LockError as failure:
            logger.warning("%s is not released, and ends with its lease: %s", held.key, failure)
        if error is None and is_cancelled_by_others:
            raise asyncio.CancelledError
        if was_lost and (error is None or is_cancelled_here):
            held.raise_if_lost()
        if is_gone and error is None:
            raise LockLost(held.key, held.token, NOT_HELD)


class Held(Hold):
    """A lock that is held."""

    def __init__(self, locks: Locks, terms: Terms, grant: _core.Grant, renew: bool) -> None:
        super().__init__(terms, grant, locks._server, renew)
        self._locks = locks
        self._task: Optional[asyncio.Task[Any]] = None
        self._has_cancelled = False
        self._extending = asyncio.Lock()
        #: Is set when the lock is lost.
        self.lost = Lost(self)

    async def release(self) -> bool:
        """Gives the lock back. False if it was not held any more, or not by this process. Raises `Unreachable` or `Refused`: then it
        ends with its lease."""
        if self._is_released or self._is_of_other_process:
            return False
        self._why_lost()
        self._is_released = True
        if self.open:
            return False
        self._server.holds.discard(self)
        try:
            return await self._locks._run(_core.release(self, self._locks._budget))
        except asyncio.CancelledError:
            self._may_be_released = True
            self._locks._spawn(self._release_later())
            raise
        except BaseException as failure:
            self._release_has_failed(failure)
            raise

    async def _release_later(self) -> None:
        try:
            await self._locks._run(_core.release(self, self._locks._budget))
        except BaseException as failure:
            self._release_has_failed(failure)
            if not isinstance(failure, LockError):
                raise
            logger.warning("%s is not released, and ends with its lease: %s", self.key, failure)

    def _release_has_failed(self, failure: BaseException) -> None:
        super()._release_has_failed(failure)
        self._locks._wake_for(self)

    async def extend(self, lease: Optional[float] = None) -> None:
        """Starts the lease anew, with another length in seconds if one is given. Raises `LockLost`, `Unreachable` or `Refused`."""
        self.raise_if_lost()
        if self.open:
            return
        async with self._turn() as budget:
            await self._locks._run(_core.extend_now(self, lease, budget))
        self._locks._wake_for(self)

    async def leave(self, rest: float) -> None:
        """Leaves the lock held for so many seconds, and renews it no more. Raises as `extend`."""
        self.raise_if_lost()
        if self.open:
            return
        async with self._turn() as budget:
            await self._locks._run(_core.leave(self, rest, budget))
        self._server.holds.discard(self)

    async def transfer_to(self, owner: Key, lease: Optional[float] = None) -> Optional[int]:
        """Hands the lock over, as `redlatch_client.Held.transfer_to`. A block of `cancelling()` ends, and raises `LockLost`."""
        self.raise_if_lost()
        async with self._turn() as budget:
            return await self._locks._run(_core.transfer(self, owner, lease, budget))

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[Budget]:
        """The turn to extend, which counts for the budget of the call."""
        budget = Budget(self._locks._budget)
        try:
            await asyncio.wait_for(self._extending.acquire(), budget.left())
        except asyncio.TimeoutError:
            raise Unreachable("a renewal is not answered") from None
        try:
            yield budget
        finally:
            self._extending.release()

    async def fenced(self, connection: Any, name: Optional[str] = None) -> None:
        """First in a transaction that writes under the lock: has the database refuse it if a later holder has written.

        connection: as of `redlatch_client.Held.fenced`, or a connection or cursor of psycopg for asyncio.
        """
        if self.open:
            raise Unreachable(f"{shown(self.key)} is not locked: {self._why_open}")
        if self._is_of_other_process:
            self.raise_if_lost()
        with fence(self.token) as token:
            answer = token.check(connection, name or self.key)
            if isawaitable(answer):
                await answer

    def _tell(self) -> None:
        self.lost._event.set()
        self._server.holds.discard(self)
        if self._task:
            self._has_cancelled = True
            self._task.cancel(f"{self.key} is lost")

    async def _is_only_canceller(self, error: Optional[BaseException]) -> bool:
        """Takes the cancellation of the task back, which may not have come yet."""
        if error is None:
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                pass
        # Before Python 3.11 nobody counts those who cancel.
        uncancel: Callable[[], int] = getattr(self._task, "uncancel", lambda: 0)
        return uncancel() == 0 and (error is None or isinstance(error, asyncio.CancelledError))


class Lost:
    """Like `asyncio.Event`: set when a lock is lost, also by its deadline while nothing can be heard."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._event = asyncio.Event()

    def is_set(self) -> bool:
        return self._held._why_lost() is not None

    async def wait(self) -> bool:
        """Waits for the loss."""
        return self.is_set() or await self._event.wait()

    @property
    def reason(self) -> Optional[str]:
        """Why: see `LockLost.reason`. None while the lock is held."""
        return self._held._why_lost()


class Connections:
    """Connections of a client's pool, or of the node that serves a key."""

    def __init__(self, client: Any) -> None:
        if not isinstance(client, (redis.Redis, redis.RedisCluster)):
            raise TypeError(f"{type(client).__name__}: no redis.asyncio.Redis, and no redis.asyncio.RedisCluster")
        self.client: Any = client
        self.is_cluster = isinstance(client, redis.RedisCluster)
        self._refreshing: Optional[asyncio.Future[Any]] = None
        #: That of the client, or of each node by its name.
        self._places: dict[Optional[str], Places] = {}

    async def take(self, key: bytes, end: float, lasts: bool) -> Taken:
        """A connection, and how to give it back. `lasts`: nobody knows how long it is used."""
        pool = await self._pool(key, end)
        # Before redis-py 7 nodes have no hash.
        node = pool.name if self.is_cluster else None
        places = self._places.get(node) or self._places.setdefault(node, Places(pool.max_connections))
        connection = await places.take(pool, end, lasts)
        give = partial(places.give, pool, connection, lasts)
        try:
            has_to_connect = not await is_ready(connection)
        except BaseException:
            await give()
            raise
        if has_to_connect:
            await within(limit_until(end), connect_once(connection, give), lambda _: give())
        return connection, give

    async def _pool(self, key: bytes, end: float) -> Any:
        """That of the client, or a node, which is one, too."""
        if not self.is_cluster:
            return self.client.connection_pool
        await within(limit_until(end), self.client.initialize())
        node = self.client.get_node_from_key(key)
        if node is None:
            raise redis_errors.ClusterDownError("no node serves the key")
        return node

    async def ask(self, step: Ask) -> Any:
        end = monotonic() + step.timeout
        try:
            connection, give = await self.take(step.key, end, step.waits)
            try:
                return await exchange(connection, step, end)
            finally:
                await give()
        except PoolFull:
            raise
        except (redis_errors.ConnectionError, redis_errors.TimeoutError, redis_errors.MovedError, redis_errors.ClusterDownError):
            if self.is_cluster:
                # Another node may serve the key by now.
                await self._refresh(end - monotonic())
            raise

    async def _refresh(self, limit: float) -> None:
        """Asks the cluster for its nodes, once for all who want it now. What takes longer goes on: the next call needs it."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.ensure_future(self.client.nodes_manager.initialize())
            self._refreshing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        await asyncio.wait({self._refreshing}, timeout=max(limit, 0.0))

    def close(self) -> None:
        if self._refreshing:
            self._refreshing.cancel()


class Places:
    """The places of a pool. Those who find it full wait for one, first come, first served."""

    def __init__(self, count: int) -> None:
        self._count = count
        # What lasts leaves room for what does not, which may be the release that it waits for, and for the one that listens.
        self._lasting = asyncio.Semaphore(max(count - 2, 1))
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    async def take(self, pool: Any, end: float, lasts: bool) -> Any:
        """A connection, which may have ended. Raises `PoolFull` at the end."""
        if lasts and self._lasting.locked():
            await self._before(end, self._lasting)
        elif lasts:
            await self._lasting.acquire()
        try:
            # Those who wait come first.
            return (None if self._turn.locked() else place_in(pool)) or await self._await(pool, end)
        except BaseException:
            if lasts:
                self._lasting.release()
            raise

    async def _await(self, pool: Any, end: float) -> Any:
        await self._before(end, self._turn)
        try:
            while True:
                self._freed.clear()
                connection = place_in(pool)
                if connection:
                    return connection
                # The rest of the program does not tell what it gives back.
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._freed.wait(), min(_core.POLL_MIN, max(end - monotonic(), 0.0)))
                if monotonic() >= end:
                    raise PoolFull(self._count)
        finally:
            self._turn.release()

    async def _before(self, end: float, turn: Union[asyncio.Lock, asyncio.Semaphore]) -> None:
        try:
            await asyncio.wait_for(turn.acquire(), max(end - monotonic(), 0.0))
        except asyncio.TimeoutError:
            raise PoolFull(self._count) from None

    async def give(self, pool: Any, connection: Any, lasts: bool) -> None:
        try:
            given = pool.release(connection)
            # A node gives it back at once.
            if isawaitable(given):
                await given
        finally:
            self._freed.set()
            if lasts:
                self._lasting.release()


def place_in(pool: Any) -> Any:
    """A connection of a pool or a node. None if all are in use."""
    take = pool.acquire_connection if hasattr(pool, "acquire_connection") else pool.get_available_connection
    try:
        return take()
    except redis_errors.ConnectionError:
        return None


def limit_until(end: float) -> float:
    """How long to connect."""
    return min(end - monotonic(), ANSWER_MAX)


async def is_ready(connection: Any) -> bool:
    """Whether it is connected, and nothing is left to be read: neither an answer nor its end."""
    # Before redis-py 7 it has another name.
    can_read = getattr(connection, "can_read", None) or connection.can_read_destructive
    try:
        return connection.is_connected and not await can_read()
    except (redis_errors.RedisError, OSError):
        return False


async def connect_once(connection: Any, give: Callable[[], Awaitable[None]]) -> None:
    """Where this fails or is cancelled, the connection is given back."""
    of_user, connection.retry = connection.retry, Retry(NoBackoff(), 0)
    try:
        await connection.disconnect(nowait=True)
        with or_ended():
            await connection.connect()
    except BaseException:
        await connection.disconnect(nowait=True)
        await give()
        raise
    finally:
        connection.retry = of_user


async def within(limit: float, work: Awaitable[T], give_back: Optional[Callable[[T], Awaitable[None]]] = None) -> T:
    """Does what redis-py does without a limit, and again and again. What is late is cancelled, and given back if it was taken."""
    attempt = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({attempt}, timeout=max(limit, 0.0))
    except asyncio.CancelledError:
        done = set()
        raise
    finally:
        if not done:
            attempt.cancel()
            attempt.add_done_callback(lambda late: discard(late, give_back))
    if not done:
        raise redis_errors.TimeoutError("the server cannot be connected to in time")
    return attempt.result()


def discard(late: asyncio.Future[T], give_back: Optional[Callable[[T], Awaitable[None]]]) -> None:
    if not late.cancelled() and not late.exception() and give_back:
        asyncio.ensure_future(give_back(late.result()))


class Session:
    """The connection of a session. It is out of the pool until the lock has ended."""

    def __init__(self, connections: Connections, key: bytes) -> None:
        self._connections = connections
        self._key = key
        self._connection: Any = None
        self._give: Optional[Callable[[], Awaitable[None]]] = None
        _core.sessions.add(self)

    def fileno(self) -> int:
        writer = self._connection._writer if self._give else None
        return writer.get_extra_info("socket").fileno() if writer else -1

    async def reconnect(self, step: Reconnect) -> None:
        await self.close()
        self._connection, self._give = await self._connections.take(self._key, monotonic() + step.seconds, lasts=True)

    async def close(self) -> None:
        """Ends the session, with its connection."""
        if self._give:
            give, self._give = self._give, None
            await self._connection.disconnect()
            await give()

    async def ask(self, step: Ask) -> Any:
        return await exchange(self._connection, step, monotonic() + step.timeout)

    async def listen(self, step: Listen) -> None:
        # A push of RESP3, or the end, which raises.
        await self._connection.read_response(disable_decoding=True, timeout=step.seconds, push_request=True)


async def exchange(connection: Any, step: Ask, end: float) -> Any:
    """Sends a request and waits for its answer, until `end` at the latest."""
    try:
        with or_ended():
            await connection.send_command(*step.begin(), check_health=False)
        limit = max(step.limit(connection.socket_timeout, end - monotonic()), 0.001)
        until = monotonic() + limit
        answer = await connection.read_response(disable_decoding=True, timeout=limit)
        if answer is None and monotonic() >= until:
            raise redis_errors.TimeoutError("the server does not answer")
        return answer
    except redis_errors.ResponseError:
        raise
    except BaseException:
        await connection.disconnect(nowait=True)
        raise


@contextmanager
def or_ended() -> Iterator[None]:
    """A cluster's client that finds its nodes anew ends their connections, also while something is sent: then redis-py lacks a writer."""
    try:
        yield
    except AttributeError as error:
        raise redis_errors.ConnectionError("the connection has ended") from error


def is_cancelled() -> bool:
    """Whether this task is to end. Before Python 3.12 a cancellation gets lost in redis-py if what it waits for is there already."""
    return bool(getattr(asyncio.current_task(), "cancelling", lambda: 0)())


async def run(steps: Steps[T], connections: Connections, session: Optional[Session] = None, is_ours: bool = False) -> T:
    """Does the steps, and returns what they come to. `is_ours`: in a task of this module."""
    channel = session or connections
    try:
        step = next(steps)
        while True:
            if is_ours and is_cancelled():
                raise asyncio.CancelledError
            try:
                answer = None
                if isinstance(step, Ask):
                    answer = await channel.ask(step)
                elif isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                elif session and isinstance(step, Reconnect):
                    await session.reconnect(step)
                elif session and isinstance(step, Listen):
                    await session.listen(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


logger = logging.getLogger("redlatch_client")
#: How long a message of the channel is waited for at once. Seconds.
LISTEN_MAX = 5.0
#: Seconds.
CANCEL_AGAIN = 0.1
