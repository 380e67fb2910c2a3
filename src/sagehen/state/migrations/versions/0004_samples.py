"""Tables of metric samples by the minute, for CloudWatch."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "series",
        sa.Column("series_id", number, autoincrement=True, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("metric", sa.String(length=64), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("dimensions", sa.Text(), nullable=False),
        sa.Column("unit", sa.String(length=32), nullable=False),
        sa.Column("last_minute", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("series_id", name=op.f("pk_series")),
        sa.UniqueConstraint("digest", name=op.f("uq_series_digest")),
    )
    op.create_index(op.f("ix_series_metric"), "series", ["metric"], unique=False)
    op.create_index(op.f("ix_series_namespace"), "series", ["namespace", "name"], unique=False)
    op.create_table(
        "samples",
        sa.Column("series_id", number, autoincrement=False, nullable=False),
        sa.Column("minute", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("count", sa.Double(), nullable=False),
        sa.Column("sum", sa.Double(), nullable=False),
        sa.Column("minimum", sa.Double(), nullable=False),
        sa.Column("maximum", sa.Double(), nullable=False),
        sa.Column("buckets", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("series_id", "minute", name=op.f("pk_samples")),
        sqlite_with_rowid=False,
    )
