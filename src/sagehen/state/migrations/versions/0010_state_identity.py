"""The id that the state has in common with its objects' files; how long messages and deliveries
were to wait, which a clock that is set back must not lengthen."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "state_identity",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("state_id", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_state_identity")),
    )
    op.add_column("queue_messages", sa.Column("hidden_seconds", sa.Double(), nullable=True))
    op.add_column("deliveries", sa.Column("delay_seconds", sa.Double(), nullable=True))
