"""The settings of a bucket."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("buckets", sa.Column("settings", sa.Text(), nullable=True))
