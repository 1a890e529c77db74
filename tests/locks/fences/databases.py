"""Databases for run.py, each in a directory of its own, without a TCP port; and what a writer does in each.

Needs the programs of PostgreSQL, PgBouncer and MariaDB, psycopg and PyMySQL. As root, servers run as the users of their packages.
"""

import contextlib
import os
import pathlib
import shutil
import sqlite3
import subprocess
import time

READY_SECONDS_MAX = 60
LOCK = "stock"


class Blocked(Exception):
    """Another transaction holds what this one wants."""


class Stale(Exception):
    """The database has refused the token."""


def program(name):
    """A program of the path, or of Debian's newest PostgreSQL."""
    folders = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    path = os.pathsep.join([*map(str, folders), os.environ["PATH"], "/usr/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed")
    return found


def as_user(user, words):
    """The command, as that user where this one is root, which these servers refuse to run as."""
    return [program("runuser"), "-u", user, "--", *words] if os.geteuid() == 0 else list(words)


def give(folder, user):
    """Makes a directory that the user owns, whom the package of the database makes."""
    folder.mkdir()
    if os.geteuid() == 0:
        try:
            shutil.chown(folder, user)
        except LookupError as error:
            raise FileNotFoundError(f"the database of the user {user} is not installed") from error


def run(words, text=""):
    """Runs a command with this text; an error has what it printed."""
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=READY_SECONDS_MAX)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stdout}{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def server(words, folder, is_ready):
    """Runs a server until the block is left; its log is in the folder."""
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        begun = time.monotonic()
        while not is_ready():
            if process.poll() is not None or time.monotonic() - begun > READY_SECONDS_MAX:
                raise RuntimeError(f"{words}: {(folder / 'log').read_text(errors='replace')}")
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait()


class Postgres:
    """PostgreSQL through psycopg. `socket` is the directory of its socket, or of a PgBouncer's."""

    TITLE = "PostgreSQL"
    KIND = "postgres"
    TABLE = "CREATE TABLE stock (count bigint NOT NULL, token bigint NOT NULL); INSERT INTO stock VALUES (0, 0)"
    FENCE = "SELECT redlatch_fence(%s, %s)"

    def __init__(self, socket, user="postgres"):
        import psycopg

        self._errors = psycopg.errors
        # In transaction mode each transaction may have another connection of the pool, where nothing is prepared.
        self._connection = psycopg.connect(
            host=socket, user=user, dbname="postgres", autocommit=True, prepare_threshold=None
        )

    @staticmethod
    @contextlib.contextmanager
    def started(folder):
        give(folder, "postgres")
        data = folder / "data"
        run(as_user("postgres", [program("initdb"), "-A", "trust", "-U", "postgres", "-D", str(data)]))
        words = [program("postgres"), "-D", str(data), "-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off"]
        ready = [program("pg_isready"), "-q", "-h", str(folder)]
        with server(as_user("postgres", words), folder, lambda: subprocess.run(ready).returncode == 0):
            yield str(folder)

    @staticmethod
    def install(socket, sql):
        run([program("psql"), "-q", "-v", "ON_ERROR_STOP=1", "-h", socket, "-U", "postgres"], sql)

    def ask(self, sql, values=()):
        try:
            cursor = self._connection.execute(sql, values)
            return cursor.fetchone() if cursor.description else None
        except self._errors.LockNotAvailable as error:
            raise Blocked from error
        except self._errors.Error as error:
            if error.sqlstate == "RL001":
                raise Stale(str(error)) from error
            raise

    def begin(self, is_patient):
        self.ask("BEGIN")
        if not is_patient:
            self.ask("SET LOCAL lock_timeout = '20ms'")

    def end(self, word):
        self.ask(word)


class PgBouncer(Postgres):
    """The same through PgBouncer, which gives each transaction one of few connections."""

    TITLE = "PostgreSQL through PgBouncer"

    @staticmethod
    @contextlib.contextmanager
    def started(folder):
        give(folder, "postgres")
        with Postgres.started(folder / "server") as behind:
            users, settings = folder / "users", folder / "pgbouncer.ini"
            users.write_text('"postgres" ""\n')
            settings.write_text(
                f"[databases]\n* = host={behind}\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = {folder}\n"
                f"listen_port = 5432\nauth_type = trust\nauth_file = {users}\npool_mode = transaction\ndefault_pool_size = 3\n"
            )
            words = as_user("postgres", [program("pgbouncer"), str(settings)])
            with server(words, folder, (folder / ".s.PGSQL.5432").exists):
                yield str(folder)


class MariaDb:
    """MariaDB through PyMySQL. `socket` is the path of its socket."""

    TITLE = "MariaDB"
    KIND = "mysql"
    TABLE = (
        "CREATE TABLE stock (count BIGINT NOT NULL, token BIGINT NOT NULL) ENGINE = InnoDB; INSERT INTO stock VALUES (0, 0)"
    )
    FENCE = "CALL redlatch_fence(%s, %s)"

    def __init__(self, socket, user="writer"):
        import pymysql

        self._errors = pymysql.err
        self._connection = pymysql.connect(unix_socket=socket, user=user, database="shop", autocommit=True)

    @staticmethod
    @contextlib.contextmanager
    def started(folder):
        give(folder, "mysql")
        data, socket = folder / "data", folder / "socket"
        # Two that are made at the same time must not share temporary files.
        apart = ["env", f"TMPDIR={folder}"]
        install = [*apart, program("mariadb-install-db"), "--no-defaults", f"--datadir={data}", "--skip-test-db"]
        run(as_user("mysql", install))
        words = [*apart, program("mariadbd"), "--no-defaults", f"--datadir={data}", f"--socket={socket}", "--skip-networking"]
        words += [f"--pid-file={folder / 'pid'}", "--skip-grant-tables", "--innodb-flush-log-at-trx-commit=0"]
        with server(as_user("mysql", words), folder, socket.exists):
            run([program("mariadb"), "--no-defaults", f"--socket={socket}"], "CREATE DATABASE shop")
            yield str(socket)

    @staticmethod
    def install(socket, sql, user="root"):
        run([program("mariadb"), "--no-defaults", f"--socket={socket}", f"--user={user}", "shop"], sql)

    def ask(self, sql, values=()):
        with self._connection.cursor() as cursor:
            try:
                cursor.execute(sql, values)
                return cursor.fetchone()
            except self._errors.OperationalError as error:
                if error.args[0] == 1205:  # Lock wait timeout exceeded
                    raise Blocked from error
                if error.args[0] == 1644:  # What SIGNAL raises
                    raise Stale(error.args[1]) from error
                raise

    def begin(self, is_patient):
        self.ask(f"SET innodb_lock_wait_timeout = {50 if is_patient else 0}")
        self.ask("START TRANSACTION")

    def end(self, word):
        self.ask(word)


class Sqlite:
    """SQLite through Python's own module. `file` is the database."""

    TITLE = "SQLite"
    KIND = "sqlite"
    TABLE = "CREATE TABLE stock (count INTEGER NOT NULL, token INTEGER NOT NULL); INSERT INTO stock VALUES (0, 0)"
    FENCE = "INSERT OR REPLACE INTO redlatch_fence VALUES (?, ?)"

    def __init__(self, file):
        self._connection = sqlite3.connect(file, isolation_level=None, timeout=10)

    @staticmethod
    @contextlib.contextmanager
    def started(folder):
        folder.mkdir()
        yield str(folder / "shop.db")

    @staticmethod
    def install(file, sql):
        with contextlib.closing(sqlite3.connect(file)) as connection:
            connection.executescript(sql)

    def ask(self, sql, values=()):
        try:
            return self._connection.execute(sql.replace("%s", "?"), values).fetchone()
        except sqlite3.IntegrityError as error:
            raise Stale(str(error)) from error
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise Blocked from error
            raise

    def begin(self, is_patient):
        self.ask(f"PRAGMA busy_timeout = {10_000 if is_patient else 20}")
        self.ask("BEGIN")

    def end(self, word):
        # A refused token has ended the transaction.
        if self._connection.in_transaction:
            self.ask(word)


ALL = [Postgres, PgBouncer, MariaDb, Sqlite]
