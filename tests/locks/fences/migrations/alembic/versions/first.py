"""A migration that fails, or leaves a second row, if it runs twice."""

import sqlalchemy
from alembic import op

revision = "first"
down_revision = None


def upgrade():
    table = op.create_table("shop_migrated", sqlalchemy.Column("by", sqlalchemy.Text))
    op.bulk_insert(table, [{"by": "alembic"}])
