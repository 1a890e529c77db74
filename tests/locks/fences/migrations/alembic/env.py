"""Migrates the SQLite database that DATABASE names."""

import os

import sqlalchemy
from alembic import context

with sqlalchemy.create_engine(f"sqlite:///{os.environ['DATABASE']}").connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
