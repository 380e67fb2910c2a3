"""Finished objects of transform jobs are rows; uploads carry their owner in their ids."""

import json
from itertools import chain

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "transform_finished_objects",
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("key", sa.LargeBinary(length=1024), nullable=False),
        sa.Column("failed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "key", name=op.f("pk_transform_finished_objects")),
    )
    _move_keys()
    for column in ("done", "failed", "uploads"):
        op.drop_column("transform_progress", column)


def _move_keys() -> None:
    """Makes rows of lists, and writes `done_through` as a JSON string."""
    progress = sa.table(
        "transform_progress",
        sa.column("job_id", sa.String),
        sa.column("done", sa.JSON),
        sa.column("failed", sa.JSON),
        sa.column("done_through", sa.Text),
    )
    finished = sa.table(
        "transform_finished_objects",
        sa.column("job_id", sa.String),
        sa.column("key", sa.LargeBinary),
        sa.column("failed", sa.Boolean),
    )
    connection = op.get_bind()
    columns = progress.c
    query = sa.select(columns.job_id, columns.done, columns.failed, columns.done_through)
    for job_id, done, failed, through in connection.execute(query).all():
        keys = dict(chain(((key, False) for key in done), ((key, True) for key in failed)))
        for key, has_failed in keys.items():
            row = {"job_id": job_id, "key": key.encode(), "failed": has_failed}
            connection.execute(finished.insert().values(row))
        if through is not None:
            changed = progress.update().where(columns.job_id == job_id)
            connection.execute(changed.values(done_through=json.dumps(through)))
