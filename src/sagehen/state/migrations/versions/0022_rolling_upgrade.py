"""The oldest version that may use the state: see `state.compatibility`; and nodes that leave."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "compatibility",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("oldest_revision", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_compatibility")),
    )
    # With defaults: servers of the version before insert rows without these columns.
    op.add_column(
        "nodes", sa.Column("is_leaving", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.add_column(
        "nodes", sa.Column("version", sa.String(length=40), nullable=False, server_default="")
    )
