"""redlatch: a Redis-compatible lock server for tests, whose clock, failures and history the test commands.

`Server` starts one; `Server.namespace` gives each test a server of its own in it. `redlatch.aio` has the same for asyncio, and
pytest finds the fixtures `redlatch`, `redlatch_aio` and `redlatch_server` by itself.
"""

from ._namespace import Clock, Conditions, Fault, Faults, Namespace, Nodes, Slots
from ._resp import CommandError
from ._server import Server, StartError, find_binary
from ._types import ClockState, Deadline, Event, EventKind, FaultState, Finding, NamespaceState, NodeState

__all__ = [
    "Clock",
    "ClockState",
    "CommandError",
    "Conditions",
    "Deadline",
    "Event",
    "EventKind",
    "Fault",
    "FaultState",
    "Faults",
    "Finding",
    "Namespace",
    "NamespaceState",
    "NodeState",
    "Nodes",
    "Server",
    "Slots",
    "StartError",
    "find_binary",
]
