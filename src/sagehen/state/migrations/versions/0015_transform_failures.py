"""Failed objects of transform jobs are rows; uploads carry their owner in their ids."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "transform_failed_objects",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "key", name=op.f("pk_transform_failed_objects")),
    )
    _rewrite_keys()
    op.drop_column("transform_progress", "failed")
    op.drop_column("transform_progress", "uploads")


def _rewrite_keys() -> None:
    """Moves keys of failed objects, and writes keys as JSON strings."""
    progress = sa.table(
        "transform_progress",
        sa.column("job_id", sa.String),
        sa.column("failed", sa.JSON),
        sa.column("done_through", sa.Text),
    )
    failed = sa.table("transform_failed_objects", sa.column("job_id"), sa.column("key"))
    connection = op.get_bind()
    columns = progress.c.job_id, progress.c.failed, progress.c.done_through
    for job_id, keys, through in connection.execute(sa.select(*columns)).all():
        for key in sorted(set(keys or ())):
            connection.execute(failed.insert().values(job_id=job_id, key=json.dumps(key)))
        if through is not None:
            changed = progress.update().where(progress.c.job_id == job_id)
            connection.execute(changed.values(done_through=json.dumps(through)))
