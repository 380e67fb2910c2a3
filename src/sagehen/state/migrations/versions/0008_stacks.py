"""The table of stacks, which templates created."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "stacks",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("modified_at", sa.Double(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("claim", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_stacks")),
    )
