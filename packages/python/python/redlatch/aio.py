"""The same for asyncio: each call runs on a thread, so that the loop and its clients go on meanwhile.

`AsyncServer` and `AsyncNamespace` have the names of `Server` and `Namespace`; calls are awaited, and attributes are not.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Generic, Optional, TypeVar

from ._namespace import Clock, Fault, Faults, Namespace, Nodes, Slots
from ._server import Server

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")

R = TypeVar("R")
S = TypeVar("S")

__all__ = ["AsyncClock", "AsyncFault", "AsyncFaults", "AsyncNamespace", "AsyncNodes", "AsyncServer", "AsyncSlots"]


class _Wrapper(Generic[S]):
    """Something whose calls are awaited."""

    def __init__(self, sync: S) -> None:
        #: The same object without asyncio.
        self.sync = sync

    def __repr__(self) -> str:
        return f"<asyncio {self.sync!r}>"


def _awaited(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, self.sync, *args, **kwargs)

    return call


def _fault(method: Callable[Concatenate[Faults, P], Fault]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, AsyncFault]]:
    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> AsyncFault:
        return AsyncFault(await asyncio.to_thread(method, self.sync, *args, **kwargs))

    return call


class AsyncClock(_Wrapper[Clock]):
    """`Clock`, awaited."""

    freeze = _awaited(Clock.freeze)
    run = _awaited(Clock.run)
    advance = _awaited(Clock.advance)
    set = _awaited(Clock.set)
    next = _awaited(Clock.next)
    auto = _awaited(Clock.auto)
    step_wall = _awaited(Clock.step_wall)
    show = _awaited(Clock.show)
    now = _awaited(Clock.now)


class AsyncFault(_Wrapper[Fault]):
    """`Fault`, awaited: `hits` and `met` are calls here."""

    remove = _awaited(Fault.remove)

    @property
    def id(self) -> int:
        """Its number."""
        return self.sync.id

    async def hits(self) -> int:
        """How often it acted."""
        return await asyncio.to_thread(lambda: self.sync.hits)

    async def met(self) -> int:
        """How many requests matched its conditions."""
        return await asyncio.to_thread(lambda: self.sync.met)

    async def __aenter__(self) -> AsyncFault:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.remove()


class AsyncFaults(_Wrapper[Faults]):
    """`Faults`, awaited."""

    add = _fault(Faults.add)
    drop_reply = _fault(Faults.drop_reply)
    drop_before = _fault(Faults.drop_before)
    delay = _fault(Faults.delay)
    stall = _fault(Faults.stall)
    error = _fault(Faults.error)
    half_reply = _fault(Faults.half_reply)
    reset = _fault(Faults.reset)
    pause_client = _fault(Faults.pause_client)
    expire_key = _fault(Faults.expire_key)
    duplicate = _fault(Faults.duplicate)
    list = _awaited(Faults.list)
    clear = _awaited(Faults.clear)


class AsyncNodes(_Wrapper[Nodes]):
    """`Nodes`, awaited."""

    list = _awaited(Nodes.list)
    crash = _awaited(Nodes.crash)
    start = _awaited(Nodes.start)
    pause = _awaited(Nodes.pause)
    resume = _awaited(Nodes.resume)
    skew = _awaited(Nodes.skew)
    partition = _awaited(Nodes.partition)
    isolate = _awaited(Nodes.isolate)
    heal = _awaited(Nodes.heal)
    replication = _awaited(Nodes.replication)

    @property
    def urls(self) -> Any:
        """The URLs of all nodes."""
        return self.sync.urls

    def __len__(self) -> int:
        return len(self.sync)


class AsyncSlots(_Wrapper[Slots]):
    """`Slots`, awaited."""

    move = _awaited(Slots.move)
    freeze = _awaited(Slots.freeze)
    thaw = _awaited(Slots.thaw)


class AsyncNamespace(_Wrapper[Namespace]):
    """`Namespace`, awaited."""

    def __init__(self, sync: Namespace) -> None:
        super().__init__(sync)
        #: Its clock, which all nodes share.
        self.clock = AsyncClock(sync.clock)
        #: Its faults.
        self.faults = AsyncFaults(sync.faults)
        #: Its nodes.
        self.nodes = AsyncNodes(sync.nodes)
        #: The slots of its cluster, if the server is one.
        self.slots = AsyncSlots(sync.slots)

    call = _awaited(Namespace.call)
    history = _awaited(Namespace.history)
    calls = _awaited(Namespace.calls)
    check = _awaited(Namespace.check)
    timeline = _awaited(Namespace.timeline)
    drop = _awaited(Namespace.drop)

    @property
    def name(self) -> str:
        """Its name."""
        return self.sync.name

    @property
    def url(self) -> str:
        """What clients are given."""
        return self.sync.url

    @property
    def urls(self) -> list[str]:
        """The URLs of all nodes."""
        return self.sync.urls

    @property
    def host(self) -> str:
        """The address of the server."""
        return self.sync.host

    @property
    def port(self) -> int:
        """The port of the server."""
        return self.sync.port

    @property
    def password(self) -> str:
        """The password that leads into the namespace."""
        return self.sync.password

    @property
    def kwargs(self) -> dict[str, Any]:
        """Arguments of clients."""
        return self.sync.kwargs

    async def __aenter__(self) -> AsyncNamespace:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drop()


class AsyncServer(_Wrapper[Server]):
    """`Server`, awaited."""

    def __init__(self, *arguments: str, nodes: int = 1, binary: Optional[str] = None) -> None:
        super().__init__(Server(*arguments, nodes=nodes, binary=binary))

    stop = _awaited(Server.stop)
    namespaces = _awaited(Server.namespaces)
    drop = _awaited(Server.drop)
    call = _awaited(Server.call)

    async def start(self) -> AsyncServer:
        """Starts the server; returns it once connections are accepted."""
        await asyncio.to_thread(self.sync.start)
        return self

    async def namespace(self, name: Optional[str] = None) -> AsyncNamespace:
        """A namespace of the server; without a name, a new one."""
        return AsyncNamespace(await asyncio.to_thread(self.sync.namespace, name))

    @property
    def url(self) -> str:
        """The URL of the namespace `default`."""
        return self.sync.url

    async def __aenter__(self) -> AsyncServer:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
