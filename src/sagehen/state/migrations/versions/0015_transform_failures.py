"""Failed objects of transform jobs are rows; uploads carry their owner in their ids."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "transform_failed_objects",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "key", name=op.f("pk_transform_failed_objects")),
    )
    _move_failed_keys()
    op.drop_column("transform_progress", "failed")
    op.drop_column("transform_progress", "uploads")


def _move_failed_keys() -> None:
    progress = sa.table(
        "transform_progress", sa.column("job_id", sa.String), sa.column("failed", sa.JSON)
    )
    failed = sa.table("transform_failed_objects", sa.column("job_id"), sa.column("key"))
    connection = op.get_bind()
    rows = connection.execute(sa.select(progress.c.job_id, progress.c.failed)).all()
    for job_id, keys in rows:
        for key in sorted(set(keys or ())):
            connection.execute(failed.insert().values(job_id=job_id, key=key))
