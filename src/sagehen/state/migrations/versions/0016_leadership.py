"""Leases have an epoch and the name of their holder's sessions.

The table is made anew, without a default for the epoch: a control of an earlier version that still
runs loses its leases, and takes none.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_table("leases")
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("holder", sa.String(length=255), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("session", sa.String(length=63), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
