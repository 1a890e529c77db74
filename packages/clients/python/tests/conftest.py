"""The clients under test: for threads, and for asyncio through the same calls."""

import asyncio
import contextlib
import threading

import pytest
import redis
import redis.asyncio
from redis.retry import Retry

import redlatch
import redlatch_client
from redlatch_client import aio

PATIENCE = 60


@pytest.fixture(scope="session")
def server():
    with redlatch.Server() as server:
        yield server


@pytest.fixture
def namespace(server):
    with server.namespace() as namespace:
        yield namespace


@pytest.fixture
def client(namespace):
    with redis.Redis(**namespace.kwargs) as client:
        yield client


@pytest.fixture
def locks(client):
    locks = redlatch_client.Locks(client)
    yield locks
    locks.close()


class Sync:
    """Makes `Locks` over redis-py."""

    def __init__(self):
        self._stack = contextlib.ExitStack()

    def locks(self, make, **options):
        """`make` gets the module `redis` or `redis.asyncio`, and the class of its retries, and returns a client. Options are of `Locks`."""
        client = make(redis, Retry)
        locks = redlatch_client.Locks(client, **options)
        self._stack.callback(client.close)
        self._stack.callback(locks.close)
        return locks

    def close(self):
        self._stack.close()


class Aio:
    """Makes `aio.Locks`, whose calls are done by an event loop on a thread, so that a test may block."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._clients = []

    def locks(self, make, **options):
        async def begin():
            client = make(redis.asyncio, redis.asyncio.retry.Retry)
            locks = aio.Locks(client, **options)
            self._clients.append((client, locks))
            return locks

        return Blocking(self._do(begin()), self._do)

    def close(self):
        async def end():
            for client, locks in self._clients:
                await locks.aclose()
                await client.aclose()

        self._do(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)


class Blocking:
    """An object whose coroutines are waited for, and what they return, too."""

    def __init__(self, inner, do):
        self._inner = inner
        self._do = do

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if isinstance(found, aio.Lost):
            return Blocking(found, self._do)
        if not callable(found):
            return found

        def call(*arguments, **options):
            if isinstance(self._inner, aio.Lost) and arguments:
                return self._do(asyncio.wait_for(found(), *arguments))
            answer = found(*arguments, **options)
            answer = self._do(answer) if asyncio.iscoroutine(answer) else answer
            return Blocking(answer, self._do) if isinstance(answer, (aio.Lock, aio.Held)) else answer

        return call


@pytest.fixture(params=["sync", "aio"])
def face(request):
    """Makes locks of both kinds: `face.locks(make)`."""
    face = Sync() if request.param == "sync" else Aio()
    yield face
    face.close()
