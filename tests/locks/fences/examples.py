"""Runs what docs/fencing.md shows: the fenced file, the fenced service, and migrations under a lock."""

import contextlib
import io
import os
import pathlib
import sqlite3
import subprocess
import sys

import databases
import fenced_file
from fenced_service import Service

MIGRATIONS = pathlib.Path(__file__).resolve().parent / "migrations"
MIGRATION_SECONDS_MAX = 120
# Instances of a service that start at the same time.
INSTANCES = 4


def check(program, redlatch, folder):
    """Raises what is not as it should be. `redlatch` is the path of a server's socket."""
    folder.mkdir()
    check_file(folder / "report")
    check_service(program, folder / "shop.db")
    check_refusals(program, folder / "bare.db")
    check_migrations(program, redlatch, folder)


def equal(seen, wanted):
    if seen != wanted:
        raise AssertionError(f"{seen!r} in place of {wanted!r}")


def raised(error, deed, *arguments):
    """The text of the error that the call must raise."""
    try:
        deed(*arguments)
    except error as raised_error:
        return str(raised_error)
    raise AssertionError(f"{deed} raises no {error}")


def check_file(path):
    fenced_file.write(path, b"by the first", 5)
    fenced_file.write(path, b"by the first again", 5)
    fenced_file.write(path, b"by the second", 6)
    raised(fenced_file.Stale, fenced_file.write, path, b"late", 5)
    for value in ("", "-", "40x", "40", b"40", 0, -1, 6.5, True, 2**63, None):
        raised(ValueError, fenced_file.write, path, b"no token", value)
    equal(path.read_bytes(), b"by the second")


def check_service(program, file):
    sql = databases.run([program, "fence", "sql", "sqlite"])
    databases.Sqlite.install(file, f"{sql} CREATE TABLE article (price TEXT); INSERT INTO article VALUES ('1');")
    service, statuses = Service(file), []

    def put(price, **headers):
        environ = {"wsgi.input": io.BytesIO(price), **headers}
        list(service(environ, lambda status, _: statuses.append(status[:3])))

    put(b"2", HTTP_FENCING_TOKEN="41")
    put(b"3", HTTP_FENCING_TOKEN="42")
    put(b"4", HTTP_FENCING_TOKEN="41")
    put(b"5")
    no_tokens = ["", "-", "40x", "b'40'", "-1", "0", str(2**63), "9" * 5_000, "\u0664\u0660"]
    for value in no_tokens:
        put(b"6", HTTP_FENCING_TOKEN=value)
    equal(statuses, ["204", "204", "412", "428"] + ["428"] * len(no_tokens))
    with contextlib.closing(sqlite3.connect(file)) as database:
        equal(database.execute("SELECT price FROM article").fetchone(), ("3",))


def check_refusals(program, file):
    """A database without the fence, no token, and databases that redlatch does not know."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
        fence = databases.Sqlite.FENCE
        equal(raised(sqlite3.OperationalError, database.execute, fence, ("stock", 1)), "no such table: redlatch_fence")
        databases.Sqlite.install(file, databases.run([program, "fence", "sql", "sqlite3"]) * 2)
        raised(sqlite3.IntegrityError, database.execute, fence, ("stock", None))
    for words in (["oracle"], [], ["sqlite", "more"]):
        done = subprocess.run([program, "fence", "sql", *words], capture_output=True, text=True)
        equal((done.returncode, done.stdout), (64, ""))
        equal(done.stderr.startswith("redlatch: "), True)


def check_migrations(program, redlatch, folder):
    """Each tool migrates an empty database from several processes at once, as instances of a service do that start together."""
    commands = {"alembic": [sys.executable, "-m", "alembic", "upgrade", "head"], "django": [sys.executable, "manage.py", "migrate"]}
    for tool, command in commands.items():
        file = folder / f"{tool}.db"
        words = [program, "run", "--url", f"unix://{redlatch}", "--wait", "2m", f"lock:migrations:{tool}", "--", *command]
        environment = {**os.environ, "DATABASE": str(file)}
        started = [
            subprocess.Popen(words, cwd=MIGRATIONS / tool, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for _ in range(INSTANCES)
        ]
        for process in started:
            output, _ = process.communicate(timeout=MIGRATION_SECONDS_MAX)
            if process.returncode != 0:
                raise AssertionError(f"{tool}: {output}")
        with contextlib.closing(sqlite3.connect(file)) as database:
            equal(database.execute("SELECT count(*) FROM shop_migrated").fetchone(), (1,))
