"""What the server answers, by the names of its documentation."""

from __future__ import annotations

from typing import TypedDict


class Deadline(TypedDict, total=False):
    """Something that falls due: `at` in Unix milliseconds, `in` in milliseconds."""

    at: int
    what: str
    key: str
    client: str
    node: int


class ClockState(TypedDict):
    """The clock of a namespace. `now` is Unix time, `lock` the monotonic clock; both in milliseconds."""

    mode: str
    now: int
    lock: int
    deadlines: list[Deadline]


class NodeState(TypedDict):
    """A node of a namespace. `skew` is in milliseconds."""

    node: int
    port: int
    state: str
    skew: int
    partitions: list[str]
    clients: int
    keys: int


class FaultState(TypedDict):
    """A fault: requests that `met` its conditions, and how often it acted."""

    id: int
    rule: str
    met: int
    hits: int


class Event(TypedDict, total=False):
    """Something that happened: `at` in Unix milliseconds of the namespace's clock, `real` in microseconds of the machine's."""

    id: int
    kind: str
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
    fault: int
    text: str


class Finding(TypedDict):
    """Something that is wrong: the rule that is broken, and the events that show it."""

    rule: str
    key: str
    text: str
    events: list[int]
    lines: list[str]
