"""Fencing tokens in databases: `held.fenced`."""

import asyncio
import contextlib
import pathlib
import sqlite3
import subprocess

import pytest
import redis
import redis.asyncio
import sqlalchemy
from sqlalchemy.orm import Session

import redlatch
import redlatch_client as rc
from redlatch_client import aio


@pytest.fixture
def locks(server):
    with server.namespace() as namespace, redis.Redis(**namespace.kwargs) as client:
        locks = rc.Locks(client)
        yield locks
        locks.close()


@pytest.fixture
def database(tmp_path):
    """A database with the fence and a table."""
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        fence = subprocess.run([redlatch.find_binary(), "fence", "sql", "sqlite"], capture_output=True, text=True, check=True)
        database.executescript(fence.stdout + "CREATE TABLE stock (count); INSERT INTO stock VALUES (0);")
        yield database


def two_holds(locks):
    """An older hold, which the newer one's holder has outlived."""
    older = locks.lock("stock").acquire()
    older.release()
    return older, locks.lock("stock").acquire()


@pytest.mark.parametrize("of", ["connection", "cursor"])
def test_sqlite_refuses_the_older_holder(locks, database, of):
    older, newer = two_holds(locks)

    def write(held):
        with database:
            held.fenced(database if of == "connection" else database.cursor())
            database.execute("UPDATE stock SET count = count + 1")

    write(newer)
    write(newer)
    with pytest.raises(rc.StaleToken, match="stale fencing token"):
        write(older)
    assert database.execute("SELECT count FROM stock").fetchone() == (2,)
    assert database.execute("SELECT * FROM redlatch_fence").fetchall() == [("stock", newer.token)]


@pytest.mark.parametrize("kind", ["connection", "session"])
def test_sqlalchemy_refuses_the_older_holder(locks, database, tmp_path, kind):
    older, newer = two_holds(locks)
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/shop.db")

    def write(held):
        begun = engine.begin() if kind == "connection" else Session(engine).begin().session
        with begun as connection:
            held.fenced(connection, "the stock")
            connection.execute(sqlalchemy.text("UPDATE stock SET count = count + 1"))
            if kind == "session":
                connection.commit()

    write(newer)
    with pytest.raises(rc.StaleToken):
        write(older)
    assert database.execute("SELECT count FROM stock").fetchone() == (1,)
    engine.dispose()


def test_asyncio_has_the_same(server, database):
    async def main():
        with server.namespace() as namespace:
            async with redis.asyncio.Redis(**namespace.kwargs) as client:
                locks = aio.Locks(client)
                async with locks.lock("stock") as held:
                    with database:
                        await held.fenced(database)
                await locks.aclose()

    asyncio.run(main())
    assert database.execute("SELECT lock_name FROM redlatch_fence").fetchall() == [("stock",)]


def test_other_errors_are_left_as_they_are(locks):
    with locks.lock("stock") as held, contextlib.closing(sqlite3.connect(":memory:")) as without_fence:
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            held.fenced(without_fence)
        with pytest.raises(TypeError):
            held.fenced(pathlib.Path())
