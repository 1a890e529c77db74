#!/usr/bin/env python3
"""A database with the fence for the tests: prints where it is, and ends with its input.

    database.py DATABASES FOLDER postgres|mariadb PROGRAM

DATABASES is tests/locks/fences of the repository, PROGRAM redlatch. Exits with 3 if the database is not installed.
"""

import pathlib
import subprocess
import sys

sys.path.insert(0, sys.argv[1])

import databases

folder, program = pathlib.Path(sys.argv[2]), sys.argv[4]
kind = {"postgres": databases.Postgres, "mariadb": databases.MariaDb}[sys.argv[3]]
# The users of the databases pass through it.
folder.chmod(0o755)
try:
    started = kind.started(folder / "database")
    address = started.__enter__()
except FileNotFoundError as error:
    print(error, flush=True)
    sys.exit(3)
try:
    fence = subprocess.run([program, "fence", "sql", kind.KIND], capture_output=True, text=True, check=True).stdout
    orders = "CREATE TABLE orders (id int, state varchar(9))"
    kind.install(address, f"{fence}\n{kind.TABLE};\n{orders};\nINSERT INTO orders VALUES (7, 'open'), (8, 'open');")
    print(address, flush=True)
    sys.stdin.read()
finally:
    started.__exit__(None, None, None)
