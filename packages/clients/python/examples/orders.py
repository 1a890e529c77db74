"""Writes under a lock into a database that refuses the write of a holder that was paused beyond its lease."""

import sqlite3

from redlatch_client import Locks


def close_order(locks: Locks, database: sqlite3.Connection, order: int) -> None:
    with locks.lock(f"lock:order:{order}", wait=5) as held:
        with database:  # a transaction
            held.fenced(database, "orders")
            database.execute("UPDATE orders SET state = 'closed' WHERE id = ?", (order,))
