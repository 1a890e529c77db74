"""A namespace: its clock, its faults, its nodes, and what happened in it.

Owns    `Namespace`, `Clock`, `Faults`, `Fault`, `Nodes`, `Slots`.
Time    seconds, as everywhere in Python; `timedelta` and `datetime` where a call says so. The server counts milliseconds.
"""

from __future__ import annotations

import subprocess
import threading
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Optional, TypedDict, Union
from urllib.parse import quote

from ._resp import CommandError, Connection, Word
from ._types import ClockState, Event, FaultState, Finding, NodeState

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._server import Server
    from .aio import AsyncNamespace

Seconds = Union[int, float, timedelta]


class Namespace:
    """A server of its own inside of a server: keys, clients, channels, scripts, settings, clock, faults and history.

    Made by `Server.namespace`. A `with` block drops it at its end.
    """

    def __init__(self, server: Server, name: str) -> None:
        self._server = server
        self._connections: dict[int, Connection] = {}
        self._lock = threading.Lock()
        #: Its name.
        self.name = name
        #: Its clock, which all nodes share.
        self.clock = Clock(self)
        #: Its faults.
        self.faults = Faults(self)
        #: Its nodes.
        self.nodes = Nodes(self)
        #: The slots of its cluster, if the server is one.
        self.slots = Slots(self)

    @property
    def url(self) -> str:
        """What clients are given: `redis://:namespace%3Aorders@127.0.0.1:40000`."""
        return self._url(self.port)

    @property
    def urls(self) -> list[str]:
        """The URLs of all nodes."""
        return [self._url(port) for port in self._server.ports]

    @property
    def host(self) -> str:
        """The address of the server."""
        return self._server.host

    @property
    def port(self) -> int:
        """The port of the server; of the first node if there are several."""
        return self._server.port

    @property
    def password(self) -> str:
        """The password that leads into the namespace."""
        return f"namespace:{self.name}"

    @property
    def kwargs(self) -> dict[str, Any]:
        """Arguments of clients: `redis.Redis(**namespace.kwargs)`."""
        return {"host": self.host, "port": self.port, "password": self.password}

    @property
    def aio(self) -> AsyncNamespace:
        """The same namespace for asyncio."""
        from .aio import AsyncNamespace

        return AsyncNamespace(self)

    def call(self, *words: Word) -> Any:
        """Sends a command to the first node that answers, and returns the reply."""
        return self._call(self._server.ports, words)

    def history(
        self,
        *,
        since: Optional[int] = None,
        key: Optional[str] = None,
        command: Optional[str] = None,
        client: Optional[str] = None,
        count: Optional[int] = None,
    ) -> list[Event]:
        """What happened, oldest first: requests, replies, expiries, grants, faults, clients."""
        words = _options(since=since, key=key, command=command, client=client, count=count)
        events: list[Event] = self.call("TEST.HISTORY", *words)
        return events

    def calls(
        self, *, key: Optional[str] = None, command: Optional[str] = None, client: Optional[str] = None
    ) -> dict[str, int]:
        """How often each command was called."""
        counts: dict[str, int] = self.call("TEST.CALLS", *_options(key=key, command=command, client=client))
        return counts

    def check(self) -> list[Finding]:
        """What clients did wrong with locks. Empty if nothing: `assert not namespace.check()`."""
        findings: list[Finding] = self.call("TEST.CHECK")
        return findings

    def timeline(self, format: str = "text") -> str:
        """A picture of what happened, a lane for each client: `text` or `html`."""
        command = [self._server.binary, "timeline", self.url, "--format", format]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise CommandError(done.stderr.strip() or f"redlatch timeline ended with status {done.returncode}")
        return done.stdout

    def close(self) -> None:
        """Closes the connections of this object. The namespace stays."""
        with self._lock:
            while self._connections:
                self._connections.popitem()[1].close()

    def drop(self) -> bool:
        """Ends the namespace and disconnects its clients. False if nobody has entered it."""
        self.close()
        return self._server.drop(self.name)

    def __enter__(self) -> Namespace:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def __repr__(self) -> str:
        return f"<redlatch.Namespace {self.url}>"

    def _url(self, port: int) -> str:
        return f"redis://:{quote(self.password, safe='')}@{self.host}:{port}"

    def _call(self, ports: list[int], words: tuple[Word, ...]) -> Any:
        """Sends a command to the first of the ports that answers; a node that has crashed does not."""
        lost: Optional[OSError] = None
        for port in ports:
            try:
                return self._connection(port).call(*words)
            except OSError as error:
                with self._lock:
                    self._connections.pop(port, None)
                lost = error
        raise lost or ConnectionError("there is no other node to ask")

    def _connection(self, port: int) -> Connection:
        with self._lock:
            if port not in self._connections:
                self._connections[port] = self._server.connect(self.password, port)
            return self._connections[port]


class Clock:
    """The clock of a namespace. It drives everything that has a time: leases, TTL, TIME, and the ends of waits.

    Calls that move it return after all that fell due has happened. Where a time is returned, it is Unix time in seconds.
    """

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def freeze(self) -> float:
        """Time stands still."""
        return self._time("FREEZE")

    def run(self) -> float:
        """Time passes as usual, from where it stands."""
        return self._time("RUN")

    def advance(self, seconds: Seconds) -> float:
        """Time moves forward through every deadline in between, in order."""
        return self._time("ADVANCE", _millis(seconds))

    def set(self, moment: Union[int, float, datetime]) -> float:
        """Like `advance`, to a moment. An earlier one is refused."""
        seconds = moment.timestamp() if isinstance(moment, datetime) else moment
        return self._time("SET", _millis(seconds))

    def next(self) -> Optional[float]:
        """Like `advance`, to the next deadline. None if nothing is due ever."""
        millis: Optional[int] = self._call("NEXT")
        return None if millis is None else millis / 1000

    def auto(self, on: bool = True, *, idle: Optional[Seconds] = None) -> None:
        """Time stands still, and goes to the next deadline whenever every client is blocked or silent for `idle`."""
        if on:
            self._call("AUTO", "ON", *(() if idle is None else ("IDLE", _millis(idle))))
        else:
            self._call("AUTO", "OFF")

    def step_wall(self, seconds: Seconds) -> float:
        """Steps the wall clock alone, as an administrator would. Leases do not change."""
        return self._time("STEP-WALL", _millis(seconds))

    def show(self) -> ClockState:
        """Mode, time and the next deadlines."""
        state: ClockState = self._call("SHOW")
        return state

    def now(self) -> float:
        """What time it is."""
        return self.show()["now"] / 1000

    def _time(self, *words: Word) -> float:
        return int(self._call(*words)) / 1000

    def _call(self, *words: Word) -> Any:
        return self._namespace.call("TEST.CLOCK", *words)


class Conditions(TypedDict, total=False):
    """Which requests a fault meets: those that match all of these.

    `client` is a pattern of names, libraries or addresses. `script` is a SHA-1, or what a known script is for. Of the matching
    requests the fault meets the `nth`, or `every` so many, or a share of `probability` that `seed` repeats, at most `times`.
    """

    command: str
    key: str
    script: str
    client: str
    node: int
    nth: int
    every: int
    probability: float
    seed: int
    times: int


class Fault:
    """A fault of a namespace. A `with` block removes it at its end."""

    def __init__(self, faults: Faults, id: int) -> None:
        self._faults = faults
        #: Its number.
        self.id = id

    @property
    def hits(self) -> int:
        """How often it acted."""
        return self._faults._state(self.id)["hits"]

    @property
    def met(self) -> int:
        """How many requests matched its conditions."""
        return self._faults._state(self.id)["met"]

    def remove(self) -> bool:
        """Removes it. False if it is gone already."""
        return bool(self._faults._call("REMOVE", self.id))

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<redlatch.Fault {self.id}>"


class Faults:
    """The faults of a namespace. All conditions are keywords: see `Conditions`."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def add(self, action: str, *parameters: Word, **conditions: Unpack[Conditions]) -> Fault:
        """Adds a fault by the name of its action, as in `add("DELAY", 100, command="SET")`."""
        words: list[Word] = []
        for name in ("command", "key", "script", "client", "node", "nth", "every", "probability", "seed", "times"):
            value = conditions.pop(name, None)  # type: ignore[misc]
            if value is None and name == "seed" and "PROBABILITY" in words:
                value = 1
            if value is not None:
                words += [name.upper(), value]
        if conditions:
            raise TypeError(f"a fault has no condition {', '.join(conditions)}")
        return Fault(self, self._call("ADD", *words, "DO", action, *parameters))

    def drop_reply(self, **conditions: Unpack[Conditions]) -> Fault:
        """Carried out; the connection is closed without the reply."""
        return self.add("DROP-AFTER", **conditions)

    def drop_before(self, **conditions: Unpack[Conditions]) -> Fault:
        """Not carried out; the connection is closed."""
        return self.add("DROP-BEFORE", **conditions)

    def delay(self, seconds: Seconds, **conditions: Unpack[Conditions]) -> Fault:
        """Carried out later."""
        return self.add("DELAY", _millis(seconds), **conditions)

    def stall(self, seconds: Seconds, **conditions: Unpack[Conditions]) -> Fault:
        """Carried out now, answered later."""
        return self.add("STALL", _millis(seconds), **conditions)

    def error(self, text: str, **conditions: Unpack[Conditions]) -> Fault:
        """Not carried out; the error is the reply."""
        return self.add("ERROR", text, **conditions)

    def half_reply(self, **conditions: Unpack[Conditions]) -> Fault:
        """Carried out; the connection is closed after half of the reply."""
        return self.add("HALF-REPLY", **conditions)

    def reset(self, **conditions: Unpack[Conditions]) -> Fault:
        """Not carried out; the connection is reset."""
        return self.add("RESET", **conditions)

    def pause_client(self, seconds: Seconds, **conditions: Unpack[Conditions]) -> Fault:
        """Carried out and answered; then that client is neither read nor answered for so long."""
        return self.add("PAUSE-CLIENT", _millis(seconds), **conditions)

    def expire_key(self, **conditions: Unpack[Conditions]) -> Fault:
        """Carried out; then the leases of its keys end."""
        return self.add("EXPIRE-KEY", **conditions)

    def duplicate(self, **conditions: Unpack[Conditions]) -> Fault:
        """Carried out twice; the second reply is the reply."""
        return self.add("DUPLICATE", **conditions)

    def list(self) -> list[FaultState]:
        """All faults."""
        found: list[FaultState] = self._call("LIST")
        return found

    def clear(self) -> int:
        """Removes all faults; returns how many there were."""
        return int(self._call("CLEAR"))

    def _state(self, id: int) -> FaultState:
        for state in self.list():
            if state["id"] == id:
                return state
        raise LookupError(f"fault {id} has been removed")

    def _call(self, *words: Word) -> Any:
        return self._namespace.call("TEST.FAULT", *words)


class Nodes:
    """The nodes of a namespace, numbered from 1: a store each, with one clock. What is done to them concerns this namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    @property
    def urls(self) -> list[str]:
        """The URLs of all nodes."""
        return self._namespace.urls

    def __len__(self) -> int:
        return len(self._namespace.urls)

    def list(self) -> list[NodeState]:
        """The state of every node."""
        found: list[NodeState] = self._namespace.call("TEST.NODE", "LIST")
        return found

    def crash(self, node: int, *, keep: bool = False) -> None:
        """Its connections are reset, new ones too, until `start`. Its keys are gone unless they are to be kept."""
        self._call("CRASH", node, "KEEP" if keep else "LOSE")

    def start(self, node: int) -> None:
        """It answers again."""
        self._call("START", node)

    def pause(self, node: int) -> None:
        """Its connections stay open; nothing is read or answered until `resume`."""
        self._call("PAUSE", node)

    def resume(self, node: int) -> None:
        """Ends a pause."""
        self._call("RESUME", node)

    def skew(self, node: int, seconds: Seconds) -> None:
        """Its clock is this much ahead of the others; behind them if negative."""
        self._call("SKEW", node, _millis(seconds))

    def partition(self, node: int, client: str = "*") -> None:
        """Clients whose name, library or address matches get no answers from it, until `heal`."""
        self._call("PARTITION", node, "CLIENT", client)

    def isolate(self, node: int) -> None:
        """It and the other nodes of its cluster do not hear each other, until `heal`. Clients reach it."""
        self._call("PARTITION", node, "NODES")

    def heal(self, node: int) -> None:
        """Ends all partitions of the node."""
        self._call("HEAL", node)

    def replication(self, node: int, on: bool) -> None:
        """Whether what it writes reaches its replicas. If not, it is acknowledged all the same, and a crash loses it."""
        self._call("REPLICATION", node, "ON" if on else "OFF")

    def _call(self, action: str, node: int, *words: Word) -> None:
        # A node does not answer after it has crashed, so that another one is asked, if there is another.
        ports = self._namespace._server.ports
        others = [port for number, port in enumerate(ports, 1) if number != node]
        self._namespace._call(others or ports, ("TEST.NODE", action, node, *words))


class Slots:
    """The slots of a cluster, in a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def move(self, slot: int, node: int, *, steps: Optional[int] = None) -> int:
        """Moves a slot to a node. With `steps`, so many keys move, and it stays half-way. Returns how many keys have moved."""
        moved: int = self._call("MOVE", slot, "TO", node, *_options(steps=steps))
        return moved

    def freeze(self, node: int) -> None:
        """The node tells of the slots as they are now, whatever changes, until `thaw`."""
        self._call("FREEZE", node)

    def thaw(self, node: int) -> None:
        """Ends `freeze`."""
        self._call("THAW", node)

    def _call(self, *words: Word) -> Any:
        return self._namespace.call("TEST.SLOT", *words)


def _millis(seconds: Seconds) -> int:
    if isinstance(seconds, timedelta):
        return seconds // timedelta(milliseconds=1)
    return round(seconds * 1000)


def _options(**values: Union[str, int, None]) -> list[Word]:
    return [word for name, value in values.items() if value is not None for word in (name.upper(), value)]
