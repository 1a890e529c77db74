"""The client for Python, driven by `../../conformance/run.py`: what it is asked and answers is in `../../README.md`."""

import asyncio
import inspect
import json
import math
import sys
import threading

import redis
import redis.asyncio.sentinel
import redis.sentinel
from redis.backoff import NoBackoff
from redis.retry import Retry

import redlatch_client as rc
from redlatch_client import aio

# The first that fits counts: a deadlock is a refusal.
KINDS = {
    rc.Deadlock: "deadlock",
    rc.LockHeld: "held",
    rc.LockLost: "lost",
    rc.NotSupported: "not-supported",
    rc.Refused: "refused",
    rc.Unreachable: "unreachable",
    TypeError: "invalid",
    ValueError: "invalid",
}
OPTIONS = inspect.signature(rc.Locks.lock).parameters.keys() | {"modes"}
THREADS, ASYNCIO = f"redis-py-{redis.__version__}", f"redis-py-{redis.__version__}-asyncio"


class Adapter:
    """Threads answer requests; what is a coroutine is done by an event loop on a thread of its own."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._output = threading.Lock()
        self._holds = {}

    def answer(self, request):
        id, verb = request.pop("id"), request.pop("do")
        try:
            answer = {"is": getattr(self, f"do_{verb}")(**request)}
        except Exception as error:
            kind = next((name for each, name in KINDS.items() if isinstance(error, each)), "adapter")
            says = f"{type(error).__name__}: {error}" if kind == "adapter" else str(error)
            answer = {"fails": {"kind": kind, "says": says, "holder": fields_of(getattr(error, "holder", None))}}
        with self._output:
            print(json.dumps({"id": id, **answer}), flush=True)

    def do_libraries(self):
        both = {"protocols": [2, 3], "connections": ["single", "unix", "cluster", "sentinel"]}
        return [{"name": THREADS, **both}, {"name": ASYNCIO, **both}]

    def do_open(self, library, budget, on_unavailable="closed", **where):
        async def begin():
            self._client = client_of(redis.asyncio, redis.asyncio.retry.Retry, **where)
            self._locks = aio.Locks(self._client, budget=budget, on_unavailable=on_unavailable)

        if library == ASYNCIO:
            return self._do(begin())
        self._client = client_of(redis, Retry, **where)
        self._locks = rc.Locks(self._client, budget=budget, on_unavailable=on_unavailable)

    def do_close(self):
        self._holds.clear()
        for each in (self._locks, self._client):
            self._do(each.aclose() if hasattr(each, "aclose") else each.close())

    def do_take(self, hold, key=None, keys=None, any_of=None, **options):
        if unknown := options.keys() - OPTIONS:
            raise LookupError(f"unknown options: {unknown}")
        if "permits" in options:
            options["permits"] = tuple(options["permits"])
        if "modes" in options:
            options["modes"] = {key: mode if mode == "shared" else tuple(mode) for key, mode in options["modes"].items()}
        if keys is not None:
            lock = self._locks.all(keys, **options)
        elif any_of is not None:
            lock = self._locks.any_of(any_of, **options)
        else:
            lock = self._locks.lock(key, **options)
        held = self._holds[hold] = self._do(lock.acquire())
        return {"token": held.token, "owner": held.owner.decode(), "open": held.open, "key": held.key if keys is None else None}

    def do_release(self, hold):
        return self._do(self._holds[hold].release())

    def do_extend(self, hold, **lease):
        self._do(self._holds[hold].extend(**lease))

    def do_leave(self, hold, rest):
        self._do(self._holds[hold].leave(rest))

    def do_transfer(self, hold, to, **lease):
        return self._do(self._holds[hold].transfer_to(to, **lease))

    def do_fenced(self, hold):
        self._do(self._holds[hold].fenced(None))

    def do_check(self, hold):
        held = self._holds[hold]
        held.raise_if_lost()
        assert not held.lost.is_set(), "it is told as lost, but the check says nothing"

    def do_remaining(self, hold):
        left = self._holds[hold].remaining()
        return None if left == math.inf else left

    def do_lost(self, hold):
        lost = self._holds[hold].lost
        self._do(lost.wait())
        assert lost.is_set(), "it was waited for, but is not set"
        return lost.reason

    def do_locked_by(self, key):
        return fields_of(self._do(self._locks.locked_by(key)))

    def _do(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result() if inspect.isawaitable(work) else work


def client_of(module, retry, connection, protocol, host=None, port=None, ports=(), password=None, path=None, master=None,
              reply_timeout=5, hostile=False):
    """A client of redis-py, of the package `redis` or `redis.asyncio`."""
    options = {"protocol": protocol, "password": password}
    if hostile:
        return module.Redis(host=host, port=port, **options, socket_timeout=None, socket_connect_timeout=None)
    options["socket_timeout"] = reply_timeout
    if connection == "cluster":
        return module.cluster.RedisCluster(host=host, port=port, **options)
    if connection == "sentinel":
        return module.sentinel.Sentinel([(host, port)]).master_for(master, **options)
    if connection == "unix":
        return module.Redis(unix_socket_path=path, **options)
    # It tries once: what is repeated is repeated by us.
    return module.Redis(host=host, port=port, **options, retry=retry(NoBackoff(), 0))


def fields_of(holder):
    names = ("key", "owner", "token", "kind", "holders", "permits", "waiters")
    return holder and {**{name: getattr(holder, name) for name in names}, "meta": dict(holder.meta)}


adapter = Adapter()
for line in sys.stdin:
    threading.Thread(target=adapter.answer, args=(json.loads(line),), daemon=True).start()
