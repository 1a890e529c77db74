"""What the server answers, by the names of its documentation."""

from __future__ import annotations

from typing import Literal, TypedDict


#: Something that falls due: `at` in Unix milliseconds, `in` in milliseconds. A wait has a `client`, a lease a `key`.
Deadline = TypedDict(
    "Deadline",
    {"at": int, "in": int, "what": str, "key": str, "client": int, "node": int},
    total=False,
)

#: What happened.
EventKind = Literal[
    "connect",
    "disconnect",
    "request",
    "reply",
    "granted",
    "renewed",
    "released",
    "expired",
    "refused",
    "waits",
    "missed",
    "fault",
    "failover",
]


class ClockState(TypedDict):
    """The clock of a namespace. `now` is Unix time, `lock` the monotonic clock; both in milliseconds."""

    mode: Literal["running", "frozen", "auto"]
    now: int
    lock: int
    deadlines: list[Deadline]


class NodeState(TypedDict):
    """A node of a namespace. `skew` is in milliseconds."""

    node: int
    port: int
    state: Literal["up", "paused", "crashed"]
    skew: int
    partitions: list[str]
    clients: int
    keys: int


class NamespaceState(TypedDict):
    """A namespace of a server. `mode` is that of its clock."""

    name: str
    clients: int
    keys: int
    mode: Literal["running", "frozen", "auto"]


class FaultState(TypedDict):
    """A fault: requests that `met` its conditions, and how often it acted."""

    id: int
    rule: str
    met: int
    hits: int


class Event(TypedDict, total=False):
    """Something that happened: `at` in Unix milliseconds of the namespace's clock, `real` in microseconds of the machine's."""

    id: int
    kind: EventKind
    at: int
    real: int
    node: int
    client: int
    name: str
    library: str
    command: str
    args: list[str]
    key: str
    request: int
    reply: str
    token: int
    holder: str
    lease: int
    fault: int
    text: str


class Finding(TypedDict):
    """Something that is wrong: the rule that is broken, and the events that show it."""

    rule: str
    key: str
    text: str
    events: list[int]
    lines: list[str]
