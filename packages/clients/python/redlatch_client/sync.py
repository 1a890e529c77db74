"""Locks over a client of redis-py, for threads.

Owns    the threads in the background, which a `Locks` starts with its first lock: one that renews, one that listens for losses, one
        for each lock of a session.
Knows   `_core`, which decides; here its steps are done.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Optional, TypeVar, Union

import redis
from redis import exceptions as redis_errors
from redis.backoff import NoBackoff
from redis.retry import Retry

from . import _core
from ._core import Ask, Budget, Hold, Holder, Listen, Pause, PoolFull, Reconnect, Server, Steps
from ._fence import fence
from ._generated import ANSWER_MAX, BUDGET_DEFAULT, NOT_HELD
from ._terms import Builder, Key, Terms, budget_of, wants_open, word_of
from .errors import LockError, LockLost, Unreachable, shown

T = TypeVar("T")
#: A connection, and how to give it back.
Taken = tuple[Any, Callable[[], None]]


class Locks(Builder["Lock"]):
    """The locks of a server, over a client that you have: `redis.Redis`, `redis.RedisCluster`, or a Sentinel's `master_for`.

    Requests take connections from the pool of that client, each for its time only, and a wait for all of it. One connection more
    listens for losses. May be used by several threads, and after a fork.

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
        self._opening = threading.Lock()
        self._connections = Connections(client)
        self._server = Server()
        #: That of this process, by its id. After a fork there is one of the parent, whose threads are not here.
        self._backgrounds: dict[int, Background] = {}
        weakref.finalize(self, end_of_this_process, self._backgrounds)

    def _lock(self, terms: Terms, renew: bool) -> Lock:
        return Lock(self, terms, renew)

    def locked_by(self, key: Key) -> Optional[Holder]:
        """Who holds a key; None if nobody does. Raises `Unreachable` or `Refused`."""
        return self._run(_core.locked_by(word_of("key", key), self._server, Budget(self._budget)))

    def close(self) -> None:
        """Ends the threads. Locks that are held are not renewed any more, and sessions end. The client stays open."""
        self._background().end()

    def _background(self) -> Background:
        """That of this process. Several threads may be the first to ask for it: one of them makes it."""
        pid = os.getpid()
        found = self._backgrounds.get(pid)
        if found:
            return found
        for hold in self._server.holds.copy():
            if hold._pid != pid:
                self._server.holds.discard(hold)
        return self._backgrounds.setdefault(pid, Background(self._server, self._connections))

    def _acquire(self, terms: Terms, renew: bool) -> Held:
        background = self._background()
        if background.has_ended:
            raise RuntimeError("these locks are closed")
        session = Session(self._connections, terms.keys[0]) if terms.delay_ms is not None else None
        budget = Budget(self._budget, terms.wait)
        try:
            grant = self._run(_core.acquire(terms, self._server, budget), session)
        except BaseException as error:
            if session:
                session.close()
            if not isinstance(error, Exception):
                self._run(_core.give_up(terms, self._server, Budget(self._budget)))
            if not self._wants_open or not isinstance(error, Unreachable):
                raise
            return self._open(terms, _core.open_hold(terms, error, budget))
        held = Held(self, terms, grant, renew)
        background.keep(held, session)
        return held

    def _open(self, terms: Terms, grant: _core.Grant) -> Held:
        held = Held(self, terms, grant, renew=False)
        with self._opening:
            self.opened += 1
        logger.warning("%s is not locked, and the program goes on without it: %s", shown(held.key), grant.why_open)
        return held

    def _run(self, steps: Steps[T], session: Optional[Session] = None) -> T:
        return run(steps, self._connections, session)


def end_of_this_process(backgrounds: dict[int, Background]) -> None:
    found = backgrounds.get(os.getpid())
    if found:
        found.end()


class Lock:
    """A lock that can be taken. `with locks.lock("stock") as held:` takes and releases it."""

    def __init__(self, locks: Locks, terms: Terms, renew: bool) -> None:
        self._locks = locks
        self._terms = terms
        self._renew = renew
        self._entered: dict[int, list[Held]] = {}

    def acquire(self) -> Held:
        """Takes the lock, or waits for it.

        Raises `LockHeld` when the wait has ended, `NotSupported` on a server without LOCK commands, `Refused`, `Deadlock`, or
        `Unreachable`. A request whose answer is lost, or that a server refuses for a moment, is repeated until `wait` has passed, and
        three times at least, but not beyond the budget of these `Locks`.
        """
        return self._locks._acquire(self._terms.anew(), self._renew)

    def locked_by(self) -> Optional[Holder]:
        """Who holds the (first) key; None if nobody does."""
        return self._locks.locked_by(self._terms.keys[0])

    def __enter__(self) -> Held:
        held = self.acquire()
        self._entered.setdefault(threading.get_ident(), []).append(held)
        return held

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], at: Optional[TracebackType]) -> None:
        """Releases. Raises `LockLost` if the lock was lost in the block, unless that ends with an exception of its own. A child that
        was made by a fork in the block does nothing: its parent has the lock."""
        mine = self._entered[threading.get_ident()]
        held = mine.pop()
        if not mine:
            del self._entered[threading.get_ident()]
        if held._is_of_other_process:
            return
        was_lost, is_gone = held.lost.is_set() and not held._is_handed_over, False
        try:
            is_gone = not held._is_released and not held.release() and not held.open
        except LockError as failure:
            logger.warning("%s is not released, and ends with its lease: %s", held.key, failure)
        if was_lost and error is None:
            held.raise_if_lost()
        if is_gone and error is None:
            raise LockLost(held.key, held.token, NOT_HELD)


class Held(Hold):
    """A lock that is held."""

    def __init__(self, locks: Locks, terms: Terms, grant: _core.Grant, renew: bool) -> None:
        super().__init__(terms, grant, locks._server, renew)
        self._locks = locks
        #: Requests that renew go one after the other: they may name leases of different length.
        self._extending = threading.Lock()
        #: Is set when the lock is lost.
        self.lost = Lost(self)

    def release(self) -> bool:
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
            return self._locks._run(_core.release(self, self._locks._budget))
        except BaseException as failure:
            self._release_has_failed(failure)
            self._locks._background().wake_for(self)
            raise

    def extend(self, lease: Optional[float] = None) -> None:
        """Starts the lease anew, with another length in seconds if one is given. Raises `LockLost`, `Unreachable` or `Refused`."""
        # In a child that was made by a fork, the turn may never come.
        self.raise_if_lost()
        if self.open:
            return
        with self._turn() as budget:
            self._locks._run(_core.extend_now(self, lease, budget))

    def leave(self, rest: float) -> None:
        """Leaves the lock held for so many seconds, and renews it no more. Raises as `extend`."""
        self.raise_if_lost()
        if self.open:
            return
        with self._turn() as budget:
            self._locks._run(_core.leave(self, rest, budget))
        self._server.holds.discard(self)

    def transfer_to(self, owner: Key, lease: Optional[float] = None) -> Optional[int]:
        """Hands the lock over: `owner` has it in the same instant, with a higher token, and this hold is lost as `transferred`.

        If `owner` waits for this lock alone, its wait is answered, before all others. Otherwise it has the lock for `lease` seconds, and
        takes it under its name. Returns the new token; None if the session of `owner` has ended in the same instant.

        Raises `LockLost`, `NotSupported` on a server without LOCK commands, and `ValueError` for a lock of several keys at once. `Refused`:
        as without a `lease` if `owner` does not wait; the lock is held on. `Unreachable`: the next renewal finds what has become of it.
        """
        # In a child that was made by a fork, the turn may never come.
        self.raise_if_lost()
        with self._turn() as budget:
            return self._locks._run(_core.transfer(self, owner, lease, budget))

    @contextmanager
    def _turn(self) -> Iterator[Budget]:
        """The turn to extend, which counts for the budget of the call."""
        budget = Budget(self._locks._budget)
        if not self._extending.acquire(timeout=budget.left()):
            raise Unreachable("a renewal is not answered")
        try:
            yield budget
        finally:
            self._extending.release()

    def fenced(self, connection: Any, name: Optional[str] = None) -> None:
        """First in a transaction that writes under the lock: has the database refuse it if a later holder has written.

        connection: a connection or cursor of sqlite3, psycopg, psycopg2, PyMySQL or mysqlclient, or a connection or session of
        SQLAlchemy. The database has what `redlatch fence sql` prints. name: that of the lock there. Default: the key.

        Raises `StaleToken`, `NotSupported` without a token, `LockLost` in a process that has not taken the lock, and `ValueError` for a
        connection that commits each statement by itself; other errors of the database as they are.
        """
        if self.open:
            raise Unreachable(f"{shown(self.key)} is not locked: {self._why_open}")
        if self._is_of_other_process:
            self.raise_if_lost()
        with fence(self.token) as token:
            token.check(connection, name or self.key)

    def _tell(self) -> None:
        self.lost._event.set()
        self._server.holds.discard(self)


class Lost:
    """Like `threading.Event`: set when a lock is lost, also by its deadline while nothing can be heard."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._event = threading.Event()

    def is_set(self) -> bool:
        return self._held._why_lost() is not None

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits for the loss, for at most so many seconds. Returns whether the lock is lost."""
        until = time.monotonic() + (threading.TIMEOUT_MAX / 2 if timeout is None else timeout)
        while not self.is_set():
            # A lock that was released is not lost any more.
            at = until if self._held._is_released else min(until, self._held._stops_at)
            if time.monotonic() >= until:
                return False
            self._event.wait(max(at - time.monotonic(), 0.0))
        return True

    @property
    def reason(self) -> Optional[str]:
        """Why: see `LockLost.reason`. None while the lock is held."""
        return self._held._why_lost()


class Connections:
    """Connections of a client's pool, or of the pool of the node that serves a key."""

    def __init__(self, client: Any) -> None:
        if not isinstance(client, (redis.Redis, redis.RedisCluster)):
            raise TypeError(f"{type(client).__name__}: no redis.Redis, and no redis.RedisCluster")
        self.client: Any = client
        self.is_cluster = isinstance(client, redis.RedisCluster)
        self._refreshing: Optional[Future[Any]] = None
        self._pid = os.getpid()
        #: Of each pool, and of each process: one that forks may have locked its places.
        self._places: dict[tuple[int, Any], Places] = {}

    def pool(self, key: bytes) -> Any:
        if not self.is_cluster:
            return self.client.connection_pool
        node = self.client.get_node_from_key(key)
        if node is None:
            raise redis_errors.ClusterDownError("no node serves the key")
        return self.client.get_redis_connection(node).connection_pool

    def take(self, key: bytes, end: float, lasts: bool) -> Taken:
        """A connection, and how to give it back. `lasts`: nobody knows how long it is used."""
        pool = self.pool(key)
        if not hasattr(pool, "_available_connections") and not isinstance(pool, redis.BlockingConnectionPool):
            # One that is not of redis-py.
            connection = taken(begin(pool.get_connection), pool.release, end - time.monotonic())
            return connection, partial(pool.release, connection)
        place = os.getpid(), pool
        places = self._places.get(place) or self._places.setdefault(place, Places(pool))
        connection = places.take(end, lasts)
        give = partial(places.give, connection, lasts)
        if not is_ready(connection):
            connect(connection, give, min(end - time.monotonic(), ANSWER_MAX))
        return connection, give

    def ask(self, step: Ask) -> Any:
        end = time.monotonic() + step.timeout
        try:
            connection, give = self.take(step.key, end, step.waits)
            try:
                return exchange(connection, step, end)
            finally:
                give()
        except PoolFull:
            raise
        except (redis_errors.ConnectionError, redis_errors.TimeoutError, redis_errors.MovedError, redis_errors.ClusterDownError):
            if self.is_cluster:
                # Another node may serve the key by now.
                self._refresh(end - time.monotonic())
            raise

    def _refresh(self, limit: float) -> None:
        """Asks the cluster for its nodes, once for all who want it now. What takes longer goes on: the next call needs it."""
        refreshing = self._refreshing
        # The thread of the parent of a fork is not here.
        if refreshing is None or refreshing.done() or self._pid != os.getpid():
            self._refreshing = refreshing = begin(self.client.nodes_manager.initialize)
            self._pid = os.getpid()
        wait([refreshing], max(limit, 0.0))


class Places:
    """The places of a pool. Those who find it full wait for one, first come, first served."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        # What lasts leaves room for what does not, which may be the release that it waits for, and for the one that listens.
        self._lasting = threading.Semaphore(max(pool.max_connections - 2, 1))
        self._turn = threading.Lock()
        self._freed = threading.Event()

    def take(self, end: float, lasts: bool) -> Any:
        """A connection, which may have ended. Raises `PoolFull` at the end."""
        if lasts and not self._lasting.acquire(timeout=left_until(end)):
            raise PoolFull(self._pool.max_connections)
        try:
            # Those who wait come first.
            return (None if self._turn.locked() else place_in(self._pool)) or self._await(end)
        except BaseException:
            if lasts:
                self._lasting.release()
            raise

    def _await(self, end: float) -> Any:
        if not self._turn.acquire(timeout=left_until(end)):
            raise PoolFull(self._pool.max_connections)
        try:
            while True:
                self._freed.clear()
                connection = place_in(self._pool)
                if connection:
                    return connection
                if time.monotonic() >= end:
                    raise PoolFull(self._pool.max_connections)
                # The rest of the program does not tell what it gives back.
                self._freed.wait(min(_core.POLL_MIN, left_until(end)))
        finally:
            self._turn.release()

    def give(self, connection: Any, lasts: bool) -> None:
        try:
            self._pool.release(connection)
        finally:
            if self._turn.locked():
                self._freed.set()
            if lasts:
                self._lasting.release()


def place_in(pool: Any) -> Any:
    """A connection of a pool, as of its `get_connection`, which would connect, again and again. None if the pool is full."""
    pool._checkpid()
    make: Callable[[], Any] = pool.make_connection
    try:
        if not hasattr(pool, "_available_connections"):
            return pool.pool.get_nowait() or make()
        with pool._lock:
            idle = pool._available_connections
            connection = idle.pop() if idle else make()
            pool._in_use_connections.add(connection)
            return connection
    except (redis_errors.MaxConnectionsError, queue.Empty):
        return None


def connect(connection: Any, give: Callable[[], None], limit: float) -> None:
    """Connects a connection, or gives it back."""
    attempt = begin(lambda: connect_once(connection, limit))
    try:
        result_of(attempt, limit)
    except BaseException:
        # Ends the login of an attempt that is late. Where it has no socket yet, it ends by itself.
        with suppress(AttributeError, OSError):
            socket_of(connection).shutdown(socket.SHUT_RDWR)
        # Nobody else may use the connection before.
        attempt.add_done_callback(lambda _: discard(connection, give))
        raise


def discard(connection: Any, give: Callable[[], None]) -> None:
    """Gives a connection back that is of no use."""
    connection.disconnect()
    give()


def is_ready(connection: Any) -> bool:
    """Whether it is connected, and nothing is left to be read: neither an answer nor its end."""
    try:
        return socket_of(connection) is not None and not connection.can_read()
    except (redis_errors.RedisError, OSError, *CLOSED_BY_ANOTHER_THREAD):
        return False


def connect_once(connection: Any, limit: float) -> None:
    inner = inner_of(connection)
    connection.disconnect()
    of_user = inner.retry, inner.socket_connect_timeout
    inner.retry, inner.socket_connect_timeout = Retry(NoBackoff(), 0), min(limit, of_user[1] or limit)
    try:
        with or_closed():
            connection.connect()
    finally:
        inner.retry, inner.socket_connect_timeout = of_user


def inner_of(connection: Any) -> Any:
    """Connections with a cache are a shell around another one."""
    return getattr(connection, "_conn", connection)


def socket_of(connection: Any) -> Any:
    return inner_of(connection)._sock


def begin(work: Callable[[], T]) -> Future[T]:
    """Does what redis-py does not limit, on a thread of its own: it ends by itself if nobody waits for it any more."""
    outcome: Future[T] = Future()

    def attempt() -> None:
        try:
            result = work()
        except BaseException as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    threading.Thread(target=attempt, name="redlatch-client-connect", daemon=True).start()
    return outcome


def result_of(attempt: Future[T], limit: float) -> T:
    if not wait([attempt], max(limit, 0.0)).done:
        raise redis_errors.TimeoutError("the server cannot be connected to in time")
    return attempt.result()


def taken(attempt: Future[T], give_back: Callable[[T], None], limit: float) -> T:
    """What an attempt takes. If it takes it too late, it is given back."""
    try:
        return result_of(attempt, limit)
    except BaseException:
        attempt.add_done_callback(lambda late: None if late.exception() else give_back(late.result()))
        raise


class Session:
    """The connection of a session. It is out of the pool until the lock has ended."""

    def __init__(self, connections: Connections, key: bytes) -> None:
        self._connections = connections
        self._key = key
        self._connection: Any = None
        self._give: Optional[Callable[[], None]] = None
        _core.sessions.add(self)

    def fileno(self) -> int:
        wire = socket_of(self._connection) if self._give else None
        return wire.fileno() if wire else -1

    def reconnect(self, step: Reconnect) -> None:
        self.close()
        self._connection, self._give = self._connections.take(self._key, time.monotonic() + step.seconds, lasts=True)

    def close(self) -> None:
        """Ends the session, with its connection."""
        if self._give:
            give, self._give = self._give, None
            self._connection.disconnect()
            give()

    def ask(self, step: Ask) -> Any:
        return exchange(self._connection, step, time.monotonic() + step.timeout)

    def listen(self, step: Listen) -> None:
        with or_closed():
            if self._connection.can_read(step.seconds):
                # A push of RESP3, or the end, which raises.
                self._connection.read_response(disable_decoding=True, push_request=True)


def exchange(connection: Any, step: Ask, end: float) -> Any:
    """Sends a request and waits for its answer, until `end` at the latest."""
    try:
        with or_closed():
            wire, of_client = socket_of(connection), inner_of(connection).socket_timeout
            end = min(end, time.monotonic() + step.limit(of_client, end - time.monotonic()))
            wire.settimeout(left_until(end))
            connection.send_command(*step.begin(), check_health=False)
            if not connection.can_read(left_until(end)):
                raise redis_errors.TimeoutError("the server does not answer")
            # The rest of the answer may not come.
            wire.settimeout(left_until(end))
            try:
                return connection.read_response(disable_decoding=True)
            finally:
                if socket_of(connection):
                    wire.settimeout(of_client)
    except redis_errors.ResponseError:
        raise
    except BaseException:
        connection.disconnect()
        raise


@contextmanager
def or_closed() -> Iterator[None]:
    """A client of a cluster that finds its nodes anew closes their connections, also while another thread uses them."""
    try:
        yield
    except CLOSED_BY_ANOTHER_THREAD as error:
        raise redis_errors.ConnectionError("the connection was closed by another thread") from error


def left_until(end: float) -> float:
    """A limit for a socket, for which 0 would mean not to wait."""
    return max(end - time.monotonic(), 0.001)


def run(steps: Steps[T], connections: Connections, session: Optional[Session] = None) -> T:
    """Does the steps, and returns what they come to."""
    channel = session or connections
    try:
        step = next(steps)
        while True:
            try:
                answer = None
                if isinstance(step, Ask):
                    answer = channel.ask(step)
                elif isinstance(step, Pause):
                    time.sleep(step.seconds)
                elif session and isinstance(step, Reconnect):
                    session.reconnect(step)
                elif session and isinstance(step, Listen):
                    session.listen(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


class Background:
    """Renews locks, and hears of those that are lost."""

    def __init__(self, server: Server, connections: Connections) -> None:
        self._server = server
        self._connections = connections
        self._changed = threading.Condition()
        self._wakes_at = math.inf
        self.has_ended = False
        self._renews = False
        self._listens = False

    def keep(self, held: Held, session: Optional[Session]) -> None:
        with self._changed:
            if self.has_ended:
                return
            self._server.holds.add(held)
            if session:
                self._start(self._keep_session, held, session)
            elif not self._renews:
                self._renews = True
                self._start(self._renew)
            self._plan(held)
            if held.token is not None and not self._listens:
                self._listens = True
                self._start(self._listen)

    def wake_for(self, hold: Hold) -> None:
        """Wakes when the lock is to be renewed, or it is lost by its deadline."""
        with self._changed:
            self._plan(hold)

    def _plan(self, hold: Hold) -> None:
        at = min(hold._next, hold._stops_at)
        if at < self._wakes_at:
            self._wakes_at = at
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self.has_ended = True
            for hold in self._server.holds.copy():
                hold._is_kept = False
            self._changed.notify()

    def _start(self, target: Any, *arguments: Any) -> None:
        threading.Thread(target=target, args=arguments, name="redlatch-client", daemon=True).start()

    def _renew(self) -> None:
        with ThreadPoolExecutor(RENEWALS_MAX, "redlatch-client-renewal") as workers, self._changed:
            while not self.has_ended:
                now = time.monotonic()
                leased = [hold for hold in self._server.holds.copy() if not hold._session and not hold._is_over]
                for hold in leased:
                    if hold._next <= now:
                        hold._next = math.inf
                        try:
                            workers.submit(self._renew_one, hold)
                        except RuntimeError:
                            return  # The interpreter ends.
                # What has been planned is not put off, also if its lock is gone: else each new lock would have to wake this thread.
                planned = self._wakes_at if self._wakes_at > now else math.inf
                self._wakes_at = min((min(hold._next, hold._stops_at) for hold in leased), default=math.inf)
                self._wakes_at = min(self._wakes_at, planned)
                self._changed.wait(min(self._wakes_at - now, threading.TIMEOUT_MAX))

    def _renew_one(self, hold: Held) -> None:
        with hold._extending:
            run(_core.renew(hold), self._connections)
        self.wake_for(hold)

    def _keep_session(self, held: Held, session: Session) -> None:
        try:
            run(_core.keep_session(held), self._connections, session)
        finally:
            session.close()

    def _listen(self) -> None:
        """Subscribes to all losses, which are few. Without the right to it, losses are found out by the next renewal."""
        messages = self._connections.client.pubsub()
        while not self.has_ended:
            try:
                if not messages.subscribed:
                    messages.psubscribe(f"{_core.LOST_CHANNEL.decode()}*")
                message = messages.get_message(timeout=IDLE_MAX)
            except (redis_errors.NoPermissionError, redis_errors.AuthenticationError) as error:
                logger.warning("losses of locks are found out by renewals only: %s", error)
                break
            except (*_core.CONNECTION_OR_REPLY, *CLOSED_BY_ANOTHER_THREAD):
                time.sleep(_core.RETRY_MAX)
                continue
            if message and message["type"] == "psubscribe":
                with self._changed:
                    self._server.renew_all()
                    self._wakes_at = 0.0
                    self._changed.notify()
            elif message and message["type"] == "pmessage":
                encode = messages.encoder.encode
                self._server.is_told(encode(message["channel"]), encode(message["data"]))
        messages.close()


logger = logging.getLogger("redlatch_client")
#: What redis-py raises where a connection is closed while it is read.
CLOSED_BY_ANOTHER_THREAD = (AttributeError, TypeError, ValueError)
#: Renewals at the same time.
RENEWALS_MAX = 8
#: How often threads look whether they are still needed. Seconds.
IDLE_MAX = 1.0
