"""The server process: where its program is, its start, its end.

Rule    a server never outlives the process that started it, however that ends.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import subprocess
import sys
import sysconfig
import threading
import weakref
from pathlib import Path
from typing import Any, Optional
from urllib.parse import urlsplit

from ._namespace import Namespace
from ._resp import Connection
from ._types import NamespaceState

#: Seconds until a start, a reply or an end counts as failed.
TIMEOUT = 30.0


class StartError(Exception):
    """The server cannot be found, or it did not start. The text says why."""


def find_binary() -> str:
    """The path of the program `redlatch`.

    In this order: the variable `REDLATCH_BINARY`; what `pip install redlatch` put beside Python; the search path.
    Raises `StartError` if it is nowhere.
    """
    named = os.environ.get("REDLATCH_BINARY")
    if named:
        return named
    folders = [os.path.dirname(sys.executable), sysconfig.get_path("scripts")]
    folders.append(sysconfig.get_path("scripts", f"{os.name}_user"))
    folders.append(os.environ.get("PATH", os.defpath))
    found = shutil.which("redlatch", path=os.pathsep.join(folders))
    if not found:
        raise StartError(f"there is no program 'redlatch' in {os.pathsep.join(folders)}, and REDLATCH_BINARY is not set")
    return found


class Server:
    """A redlatch server with test commands, on free ports of this machine.

    ```python
    with Server() as server:
        orders = server.namespace()
        client = redis.Redis.from_url(orders.url)
    ```

    `nodes` ports are opened, each a store of its own. `arguments` are further flags of the program.
    """

    def __init__(self, *arguments: str, nodes: int = 1, binary: Optional[str] = None) -> None:
        self._arguments = arguments
        self._nodes = nodes
        self._binary = binary
        self._process: Optional[subprocess.Popen[str]] = None
        self._owner = 0
        self._ready: dict[str, Any] = {}
        self._control: Optional[Connection] = None
        self._lock = threading.Lock()

    @classmethod
    def attach(cls, ready: dict[str, Any], binary: Optional[str] = None) -> Server:
        """A server that another process has started. `ready` is its `Server.ready`. It is not stopped from here."""
        server = cls(nodes=len(ready["ports"]), binary=binary)
        server._ready = dict(ready)
        return server

    def start(self) -> Server:
        """Starts the server; returns it once connections are accepted. A server that runs is left as it is.

        Raises `StartError` if it does not start.
        """
        if self._ready:
            return self
        command = [self.binary, "--port", "auto", "--ready-json", "--enable-test-commands", "local"]
        command += ["--exit-with-parent", str(os.getpid())]
        if self._nodes > 1:
            command += ["--nodes", str(self._nodes)]
        command += self._arguments
        # Settings that are meant for another server.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("REDLATCH_")}
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=environment
            )
        except OSError as error:
            raise StartError(f"{command[0]}: {error.strerror}{_advice(error)}") from error
        # Stops a server that the program forgets, also at the end of the interpreter.
        weakref.finalize(self, _end, process, os.getpid())
        line = _first_line(process)
        try:
            self._ready = json.loads(line)
        except ValueError:
            expected = f"'{command[0]}' is not redlatch: it said {line.strip()!r}"
            reason = _end(process, os.getpid()) or expected
            raise StartError(reason.removeprefix("redlatch: ")) from None
        self._process = process
        self._owner = os.getpid()
        return self

    def stop(self) -> None:
        """Ends the server. One that has ended, or that another process started, is left as it is."""
        if self._control:
            self._control.close()
            self._control = None
        if self._process:
            _end(self._process, self._owner)
            self._process = None
            self._ready = {}

    def namespace(self, name: Optional[str] = None) -> Namespace:
        """A namespace of the server; without a name, a new one. It is made when the first client enters it."""
        self.start()
        return Namespace(self, name or f"python-{secrets.token_hex(8)}")

    def namespaces(self) -> list[NamespaceState]:
        """All namespaces."""
        found: list[NamespaceState] = self.call("TEST.NAMESPACE", "LIST")
        return found

    def drop(self, name: str) -> bool:
        """Ends a namespace and disconnects its clients. False if there is none of that name."""
        return bool(self.call("TEST.NAMESPACE", "DROP", name))

    def call(self, *words: Any) -> Any:
        """Sends a command, outside of all namespaces but `default`, and returns the reply."""
        with self._lock:
            if self._control is None:
                self._control = self.connect(None, self.start().port)
        try:
            return self._control.call(*words)
        except OSError:
            self._control = None
            raise

    def connect(self, password: Optional[str], port: int) -> Connection:
        """A new connection to one of the ports."""
        return Connection(self.host, port, password, TIMEOUT)

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def binary(self) -> str:
        """The path of the program."""
        self._binary = self._binary or find_binary()
        return self._binary

    @property
    def ready(self) -> dict[str, Any]:
        """What the server said when it was ready: `pid`, `port`, `ports`, `url`, `version`. Empty if it does not run."""
        return self._ready

    @property
    def url(self) -> str:
        """The URL of the namespace `default`: `redis://127.0.0.1:40000`."""
        return str(self._ready["url"])

    @property
    def host(self) -> str:
        """The address."""
        return urlsplit(self.url).hostname or "127.0.0.1"

    @property
    def port(self) -> int:
        """The port, of the first node if there are several."""
        return int(self._ready["port"])

    @property
    def ports(self) -> list[int]:
        """The ports of all nodes."""
        return list(self._ready["ports"])

    @property
    def pid(self) -> int:
        """The number of the process."""
        return int(self._ready["pid"])

    def __repr__(self) -> str:
        return f"<redlatch.Server {self._ready.get('url', 'stopped')}>"


def _advice(error: OSError) -> str:
    """What to do about a program that cannot be started."""
    if error.errno == errno.ENOEXEC or getattr(error, "winerror", None) in (193, 216):
        return ": it is for another system or processor. Install the wheel for this one, or name another program in REDLATCH_BINARY"
    if isinstance(error, PermissionError):
        return ": this user may not execute it, or the file system is mounted with noexec"
    if isinstance(error, FileNotFoundError):
        return ": REDLATCH_BINARY, or the argument 'binary', must name a program that is there"
    return ""


def _first_line(process: subprocess.Popen[str]) -> str:
    """The first line that the server writes; empty if there is none in time. A thread reads: Windows cannot wait for a pipe."""
    stream = process.stdout
    assert stream
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.append(stream.readline()), daemon=True)
    reader.start()
    reader.join(TIMEOUT)
    return lines[0] if lines else ""


def _end(process: subprocess.Popen[str], owner: int) -> str:
    """Ends a process that `owner` has started; returns what it wrote to the error stream."""
    if os.getpid() != owner:
        # This is a fork of the owner, which still uses the server.
        return ""
    process.terminate()
    try:
        _, said = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
    except ValueError:
        # It has been ended before.
        return ""
    return said.strip()
