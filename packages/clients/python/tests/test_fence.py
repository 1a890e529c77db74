"""Fencing tokens in databases: `held.fenced`."""

import asyncio
import contextlib
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile

import pytest
import redis
import redis.asyncio
import sqlalchemy
from sqlalchemy.orm import Session

import redlatch
import redlatch_client as rc
from redlatch_client import aio

sys.path.insert(0, str(pathlib.Path(__file__).parents[4] / "tests/locks/fences"))

import databases


@pytest.fixture
def database(tmp_path):
    """A database with the fence and a table."""
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.executescript(fence_of("sqlite") + "CREATE TABLE stock (count); INSERT INTO stock VALUES (0);")
        yield database


def fence_of(kind):
    return subprocess.run([redlatch.find_binary(), "fence", "sql", kind], capture_output=True, text=True, check=True).stdout


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


def test_a_program_that_goes_on_after_a_refusal_writes_outside_of_the_transaction(locks, database):
    older, newer = two_holds(locks)
    with database:
        newer.fenced(database)
    database.execute("BEGIN")
    with pytest.raises(rc.StaleToken):
        older.fenced(database)
    assert not database.in_transaction
    database.execute("UPDATE stock SET count = 7")
    assert database.execute("SELECT count FROM stock").fetchone() == (7,)


def test_a_fence_refuses_the_older_of_two_holders_of_a_semaphore(locks, database):
    first = locks.lock("stock", permits=(1, 2)).acquire()
    second = locks.lock("stock", permits=(1, 2)).acquire()
    second.fenced(database)
    with pytest.raises(rc.StaleToken):
        first.fenced(database)
    assert not first.lost.is_set()


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


async def fences(server, write):
    """Has a coroutine write under a lock."""
    with server.namespace() as namespace:
        async with redis.asyncio.Redis(**namespace.kwargs) as client:
            locks = aio.Locks(client)
            async with locks.lock("stock") as held:
                await write(held)
            await locks.aclose()


def test_asyncio_has_the_same(server, database):
    async def write(held):
        with database:
            await held.fenced(database)

    asyncio.run(fences(server, write))
    assert database.execute("SELECT lock_name FROM redlatch_fence").fetchall() == [("stock",)]


@pytest.mark.parametrize("of", ["connection", "cursor"])
def test_sqlite_outside_of_a_transaction_is_refused(locks, database, of):
    database.isolation_level = None
    fenced = database if of == "connection" else database.cursor()
    with locks.lock("stock") as held:
        with pytest.raises(ValueError, match="outside of a transaction"):
            held.fenced(fenced)
        assert database.execute("SELECT count(*) FROM redlatch_fence").fetchone() == (0,)
        database.execute("BEGIN")
        held.fenced(fenced)


@pytest.mark.parametrize("kind", ["connection", "session"])
def test_sqlalchemy_outside_of_a_transaction_is_refused(locks, database, tmp_path, kind):
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/shop.db", isolation_level="AUTOCOMMIT")
    with locks.lock("stock") as held, (engine.connect() if kind == "connection" else Session(engine)) as connection:
        with pytest.raises(ValueError, match="outside of a transaction"):
            held.fenced(connection)
    engine.dispose()


def test_other_errors_are_left_as_they_are(locks):
    with locks.lock("stock") as held, contextlib.closing(sqlite3.connect(":memory:")) as without_fence:
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            held.fenced(without_fence)
        with pytest.raises(TypeError):
            held.fenced(pathlib.Path())


@contextlib.contextmanager
def running(kind):
    """A database of its own; the test is skipped where there is none. REDLATCH_REQUIRE_DATABASES: it may not be skipped."""
    with tempfile.TemporaryDirectory() as folder:
        # The users of the databases pass through it.
        pathlib.Path(folder).chmod(0o755)
        try:
            started = contextlib.ExitStack()
            address = started.enter_context(kind.started(pathlib.Path(folder) / "database"))
        except FileNotFoundError as error:
            if os.environ.get("REDLATCH_REQUIRE_DATABASES"):
                raise
            pytest.skip(str(error))
        with started:
            kind.install(address, f"{fence_of(kind.KIND)}\n{kind.TABLE};")
            yield address


@pytest.fixture(scope="module")
def postgres():
    with running(databases.Postgres) as address:
        yield {"host": address, "user": "postgres", "dbname": "postgres"}


@pytest.fixture(scope="module")
def mariadb():
    with running(databases.MariaDb) as address:
        yield {"unix_socket": address, "user": "writer", "database": "shop"}


def refuses(locks, name, begin):
    """`begin` begins a transaction, and gives what is fenced and what executes."""
    older, newer = two_holds(locks)

    def write(held):
        with begin() as (fenced, execute):
            held.fenced(fenced, name)
            execute("UPDATE stock SET count = count + 1")

    write(newer)
    with pytest.raises(rc.StaleToken):
        write(older)
    with begin() as (_, execute):
        execute(f"DELETE FROM redlatch_fence WHERE lock_name = '{name}'")


@pytest.mark.parametrize("of", ["connection", "cursor"])
def test_psycopg(locks, postgres, of):
    import psycopg

    @contextlib.contextmanager
    def begin():
        with psycopg.connect(**postgres) as connection, connection.cursor() as cursor:
            yield connection if of == "connection" else cursor, cursor.execute

    refuses(locks, "psycopg", begin)


def test_psycopg_outside_of_a_transaction_is_refused(server, locks, postgres):
    import psycopg

    with psycopg.connect(**postgres, autocommit=True) as connection, locks.lock("stock") as held:
        for fenced in connection, connection.cursor():
            with pytest.raises(ValueError, match="outside of a transaction"):
                held.fenced(fenced)
        with connection.transaction():
            held.fenced(connection, "begun")

    async def write(held):
        async with await psycopg.AsyncConnection.connect(**postgres, autocommit=True) as connection:
            with pytest.raises(ValueError, match="outside of a transaction"):
                await held.fenced(connection)

    asyncio.run(fences(server, write))


def test_pymysql_outside_of_a_transaction_is_refused(locks, mariadb):
    import pymysql

    with pymysql.connect(**mariadb, autocommit=True) as connection, locks.lock("stock") as held:
        with pytest.raises(pymysql.err.OperationalError, match="outside of a transaction"):
            held.fenced(connection)
        connection.begin()
        held.fenced(connection, "begun")


@pytest.mark.parametrize("of", ["connection", "cursor"])
def test_pymysql(locks, mariadb, of):
    import pymysql

    @contextlib.contextmanager
    def begin():
        with pymysql.connect(**mariadb) as connection, connection.cursor() as cursor:
            yield connection if of == "connection" else cursor, cursor.execute
            connection.commit()

    refuses(locks, "pymysql", begin)


@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_sqlalchemy_on_servers(locks, database, request):
    where = request.getfixturevalue(database)
    driver = {"postgres": "postgresql+psycopg://", "mariadb": "mysql+pymysql://"}[database]
    engine = sqlalchemy.create_engine(driver, connect_args=where)

    @contextlib.contextmanager
    def begin():
        with engine.begin() as connection:
            yield connection, lambda sql: connection.execute(sqlalchemy.text(sql))

    refuses(locks, "sqlalchemy", begin)
    engine.dispose()


def test_psycopg_for_asyncio(server, postgres):
    import psycopg

    async def write(held):
        async with await psycopg.AsyncConnection.connect(**postgres) as connection:
            await held.fenced(connection, "asyncio")
            await connection.execute("UPDATE redlatch_fence SET token = token + 1000000 WHERE lock_name = 'asyncio'")
        with pytest.raises(rc.StaleToken):
            async with await psycopg.AsyncConnection.connect(**postgres) as connection:
                await held.fenced(connection.cursor(), "asyncio")

    asyncio.run(fences(server, write))
