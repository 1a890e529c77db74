"""What the fence of each database refuses beside stale tokens, how a table is mended, and the rights that the fence needs."""

import databases
from examples import equal

LOCK = "typed"
# As literals of SQL: an application may send text that it has never looked at.
NO_TOKENS = ["''", "'-'", "'40x'", "'b''40'''", "X'50'", "0", "-1", "42.5", "9223372036854775808", "NULL"]
# What docs/fencing.md has an operator do.
MEND = "DELETE FROM redlatch_fence WHERE typeof(token) <> 'integer'"


def check(kind, address, sql):
    """Raises an `AssertionError` for what is not as docs/fencing.md says. `sql` is what makes the fence."""
    database = kind(address)
    modes = ["@@sql_mode", "''"] if kind is databases.MariaDb else [None]
    for mode in modes:
        database.ask(f"DELETE FROM redlatch_fence WHERE lock_name = '{LOCK}'")
        if mode:
            database.ask(f"SET sql_mode = {mode}")
        check_tokens(kind, database)
    check_savepoint(kind, database)
    if kind is databases.Sqlite:
        check_mending(kind, address, sql)
    if kind is databases.MariaDb:
        must_say(refused(database, fence(kind, 90)), "outside of a transaction")
    if kind is databases.MariaDb or kind is databases.Postgres:
        check_role(kind, address, sql)


def check_tokens(kind, database):
    """A value that is no token is refused, with the transaction, whether a token is known or not, and changes nothing."""
    for known in (None, 41):
        if known:
            fenced(kind, database, known)
        for value in NO_TOKENS:
            count = database.ask("SELECT count FROM stock")
            database.begin(is_patient=True)
            database.ask("UPDATE stock SET count = count + 1")
            refused(database, fence(kind, value))
            database.end("COMMIT")
            equal(database.ask("SELECT count FROM stock"), count)
    fenced(kind, database, 42)
    database.begin(is_patient=True)
    must_say(refused(database, fence(kind, 41)), "stale fencing token")
    database.end("COMMIT")
    equal(database.ask(f"SELECT token FROM redlatch_fence WHERE lock_name = '{LOCK}'"), (42,))


def check_savepoint(kind, database):
    """In PostgreSQL alone, a savepoint from before the refusal has the rest of the transaction commit."""
    [count] = database.ask("SELECT count FROM stock")
    database.begin(is_patient=True)
    database.ask("SAVEPOINT earlier")
    must_say(refused(database, fence(kind, 41)), "stale fencing token")
    if kind.KIND != "postgres":
        must_say(refused(database, "ROLLBACK TO SAVEPOINT earlier"), "savepoint")
        return
    database.ask("ROLLBACK TO SAVEPOINT earlier")
    database.ask("UPDATE stock SET count = count + 1")
    database.end("COMMIT")
    equal(database.ask("SELECT count FROM stock"), (count + 1,))


def check_mending(kind, address, sql):
    """A table of before, in which a text is, accepts tokens again as docs/fencing.md says."""
    database = kind(address)
    database.ask("DROP TRIGGER redlatch_fence_reads")
    database.ask(fence(kind, "''"))
    refused(database, fence(kind, 43))
    kind.install(address, f"{sql} {MEND};")
    fenced(kind, database, 43)
    refused(database, fence(kind, "''"))


def check_role(kind, address, sql):
    """A role that has no rights but those that the SQL names calls the fence."""
    grants = [line.removeprefix("--").strip() for line in sql.splitlines() if line.startswith("--     GRANT ")]
    equal(len(grants), 1)
    if kind is databases.MariaDb:
        # The server has begun without its table of users.
        kind.install(address, "FLUSH PRIVILEGES; CREATE USER admin; GRANT ALL ON *.* TO admin WITH GRANT OPTION; CREATE USER app;")
        kind.install(address, sql, "admin")
        # Without any right there, it could not even name the database.
        kind.install(address, "CREATE TABLE own (id INT); GRANT SELECT ON own TO app;", "admin")
    else:
        kind.install(address, "CREATE ROLE app LOGIN")
    app = kind(address, "app")
    app.begin(is_patient=True)
    must_say(refused(app, fence(kind, 50)), "denied")
    app.end("ROLLBACK")
    kind.install(address, grants[0], *["admin"] * (kind is databases.MariaDb))
    fenced(kind, app, 50)
    fenced(kind, app, 51)
    app.begin(is_patient=True)
    must_say(refused(app, fence(kind, 50)), "stale fencing token")
    app.end("ROLLBACK")


def fence(kind, token):
    return kind.FENCE.replace("?", "%s") % (f"'{LOCK}'", token)


def fenced(kind, database, token):
    """A transaction under this token, which must be accepted."""
    database.begin(is_patient=True)
    database.ask(fence(kind, token))
    database.end("COMMIT")


def refused(database, sql):
    """The text of the error that the statement must raise."""
    try:
        database.ask(sql)
    except Exception as error:
        return str(error)
    raise AssertionError(f"{sql}: it is accepted")


def must_say(text, words):
    if words not in text.lower():
        raise AssertionError(f"{words!r} is not in: {text}")
