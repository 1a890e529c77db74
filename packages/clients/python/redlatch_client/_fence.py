"""The statement with which a database checks a fencing token: that of `redlatch fence sql`, for each kind of connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Optional

from .errors import NotSupported, StaleToken

STATEMENTS = {
    "sqlite": "INSERT OR REPLACE INTO redlatch_fence VALUES ({}, {})",
    "postgresql": "SELECT redlatch_fence({}, {})",
    "mysql": "CALL redlatch_fence({}, {})",
}
#: The database and the marks of parameters of a driver, by the first part of its module's name.
DRIVERS = {
    "sqlite3": ("sqlite", "??"),
    "psycopg": ("postgresql", ("%s", "%s")),
    "psycopg2": ("postgresql", ("%s", "%s")),
    "pymysql": ("mysql", ("%s", "%s")),
    "MySQLdb": ("mysql", ("%s", "%s")),
}
DIALECTS = {"sqlite": "sqlite", "postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}


@dataclass(frozen=True)
class Fence:
    token: int

    def check(self, connection: Any, name: str) -> Any:
        """Asks the database. What drivers of asyncio return is to be awaited."""
        module = type(connection).__module__.split(".")[0]
        if module == "sqlalchemy":
            from sqlalchemy import text

            is_session = hasattr(connection, "get_bind")
            bind = connection.get_bind() if is_session else connection
            if not type(connection).__module__.startswith("sqlalchemy.ext.asyncio"):
                must_be_in_transaction((connection.connection() if is_session else connection).connection.driver_connection)
            statement = STATEMENTS[DIALECTS[bind.dialect.name]].format(":name", ":token")
            return connection.execute(text(statement), {"name": name, "token": self.token})
        if module not in DRIVERS:
            raise TypeError(f"{type(connection)!r}: no connection or cursor of {', '.join(DRIVERS)} or sqlalchemy")
        must_be_in_transaction(getattr(connection, "connection", connection))
        database, marks = DRIVERS[module]
        cursor = connection if hasattr(connection, "execute") else connection.cursor()
        return cursor.execute(STATEMENTS[database].format(*marks), (name, self.token))


def must_be_in_transaction(connection: Any) -> None:
    """Raises `ValueError` for a connection that commits each statement by itself, as far as its driver tells. MySQL and MariaDB tell it
    themselves, in what `redlatch fence sql` prints."""
    module = type(connection).__module__.split(".")[0]
    if module == "sqlite3":
        # With an isolation level, the module begins a transaction by itself.
        begins = connection.isolation_level is not None and getattr(connection, "autocommit", -1) == -1
        protects = begins or connection.in_transaction
    else:
        protects = module not in ("psycopg", "psycopg2") or not connection.autocommit or connection.info.transaction_status
    if not protects:
        raise ValueError("outside of a transaction, where each statement commits by itself, a fence protects nothing: begin one first")


@contextmanager
def fence(token: Optional[int]) -> Iterator[Fence]:
    """Raises `StaleToken` if the check in the block fails for that reason. Other errors of the database are left as they are."""
    if token is None:
        raise NotSupported("a fencing token")
    try:
        yield Fence(token)
    except Exception as error:
        if "stale fencing token" in str(error):
            raise StaleToken(str(error)) from error
        raise
