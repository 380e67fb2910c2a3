"""Uploads know whether their keys were deleted since they began."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "uploads", sa.Column("key_deleted", sa.Boolean(), nullable=False, server_default=sa.false())
    )
