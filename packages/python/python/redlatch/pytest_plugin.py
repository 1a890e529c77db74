"""The pytest plugin: a namespace for each test, in one server for the whole run.

Owns    the fixtures, the marker `redlatch`, the option `--redlatch-artifacts`, what a report says of a test's namespace.
Rule    under pytest-xdist the controller starts the server, and the workers use it: it ends with the controller. A server with
        several nodes is started where a test asks for it.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generator, Iterator, Optional

import pytest

from ._namespace import Namespace
from ._server import Server, StartError

if TYPE_CHECKING:
    from .aio import AsyncNamespace

_SHARED = pytest.StashKey[Server]()
_NAMESPACE = pytest.StashKey[Namespace]()
_MARKS = ("freeze", "nodes")


class RedlatchWarning(UserWarning):
    """Something about a test's namespace that its author should know."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("redlatch")
    group.addoption(
        "--redlatch-artifacts",
        metavar="DIR",
        help="Where the timeline of each failed test is written, as HTML.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "redlatch(freeze=False, nodes=1): the clock of the fixture `redlatch` stands still; it has so many nodes.",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a worker of pytest-xdist which server it shares, or why there is none."""
    config = node.config
    try:
        if _SHARED not in config.stash:
            config.stash[_SHARED] = Server().start()
        node.workerinput["redlatch"] = {"ready": config.stash[_SHARED].ready}
    except StartError as error:
        # Only tests that use the server shall fail.
        node.workerinput["redlatch"] = {"error": str(error)}


def pytest_unconfigure(config: pytest.Config) -> None:
    if _SHARED in config.stash:
        config.stash[_SHARED].stop()


@pytest.fixture(scope="session")
def redlatch_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One server for the whole run, also for all workers of pytest-xdist."""
    told: Optional[dict[str, Any]] = getattr(request.config, "workerinput", {}).get("redlatch")
    if told is None:
        with Server() as server:
            yield server
    elif "error" in told:
        raise StartError(told["error"])
    else:
        yield Server.attach(told["ready"])


@pytest.fixture(scope="session")
def _redlatch_servers() -> Iterator[dict[int, Server]]:
    """The servers with several nodes, by their number of nodes."""
    servers: dict[int, Server] = {}
    yield servers
    for server in servers.values():
        server.stop()


@pytest.fixture
def redlatch(request: pytest.FixtureRequest, _redlatch_servers: dict[int, Server]) -> Iterator[Namespace]:
    """A namespace of its own: keys, clients, clock, faults and history. It ends with the test."""
    wanted = _wanted(request.node)
    nodes = wanted.get("nodes", 1)
    if nodes == 1:
        server = request.getfixturevalue("redlatch_server")
    else:
        server = _redlatch_servers.setdefault(nodes, Server(nodes=nodes))
    namespace = server.namespace()
    if wanted.get("freeze"):
        namespace.clock.freeze()
    request.node.stash[_NAMESPACE] = namespace
    yield namespace
    del request.node.stash[_NAMESPACE]
    try:
        unused = _unused_faults(namespace)
    finally:
        namespace.drop()
    if unused:
        warnings.warn(RedlatchWarning("\n".join(unused)), stacklevel=1)


@pytest.fixture
def redlatch_aio(redlatch: Namespace) -> AsyncNamespace:
    """The namespace of the fixture `redlatch`, for asyncio."""
    return redlatch.aio


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    namespace = item.stash.get(_NAMESPACE, None)
    if report.failed and namespace is not None:
        report.sections += _sections(item, namespace)
    return report


def _wanted(item: pytest.Item) -> dict[str, Any]:
    """What the markers of a test ask for; the closest one wins."""
    wanted: dict[str, Any] = {}
    for mark in item.iter_markers("redlatch"):
        unknown = [repr(argument) for argument in mark.args] + [name for name in mark.kwargs if name not in _MARKS]
        if unknown:
            raise TypeError(f"the marker redlatch takes {' and '.join(_MARKS)}, not {', '.join(unknown)}")
        wanted = {**mark.kwargs, **wanted}
    return wanted


def _sections(item: pytest.Item, namespace: Namespace) -> list[tuple[str, str]]:
    """What is told of the namespace of a failed test. A server that cannot tell does not hide the failure."""
    sections = []
    try:
        sections.append(("redlatch timeline", namespace.timeline()))
        unused = _unused_faults(namespace)
        if unused:
            sections.append(("redlatch faults", "\n".join(unused)))
        folder = item.config.getoption("--redlatch-artifacts")
        if folder:
            sections.append(("redlatch artifacts", str(_write(Path(folder), item, namespace.timeline("html")))))
    except Exception as error:
        sections.append(("redlatch", f"the server does not tell what happened: {error}"))
    return sections


def _write(folder: Path, item: pytest.Item, html: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (re.sub(r"[^\w.-]+", "-", item.nodeid).strip("-")[:200] + ".html")
    path.write_text(html, encoding="utf-8")
    return path


def _unused_faults(namespace: Namespace) -> list[str]:
    unused = [fault for fault in namespace.faults.list() if fault["hits"] == 0]
    return [f"fault {fault['id']} never hit: {fault['rule']}" for fault in unused]
