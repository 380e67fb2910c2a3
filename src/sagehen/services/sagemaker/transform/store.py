"""The tables of transform jobs and of their progress."""

import json
from collections.abc import Iterable, Mapping

import msgspec
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Dialect,
    Double,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    TypeDecorator,
    select,
)

from sagehen.services.sagemaker.job_tables import JobStage, JobTable
from sagehen.services.sagemaker.transform.job_records import TransformJobRecord, TransformProgress
from sagehen.state import rows
from sagehen.state.database import notify
from sagehen.state.rows import METADATA

__all__ = [
    "FINISHED_OBJECTS",
    "PROGRESS",
    "TRANSFORMS_CHANGED",
    "TRANSFORM_JOBS",
    "active",
    "count_up_to",
    "counts",
    "ended_ids",
    "finished_objects",
    "forget_finished",
    "get",
    "get_for_update",
    "insert",
    "list_page",
    "next_waiting",
    "progress_of",
    "save",
    "save_finished",
    "save_progress",
    "update",
]


class KeyText(TypeDecorator[str]):
    """An object's key, as a JSON string: PostgreSQL's text cannot hold NUL, and S3's keys can."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else str(json.loads(value))


TRANSFORMS_CHANGED = "transform-jobs"
"""The database event for job operations."""

TRANSFORM_JOBS = JobTable(
    Table(
        "transform_jobs",
        METADATA,
        Column("key", String(63), primary_key=True),
        Column("name", String(63), nullable=False),
        Column("arn", String(256), nullable=False),
        Column("created_at", Double, nullable=False, index=True),
        Column("definition", JSON(none_as_null=True), nullable=False),
        Column("job_id", String(32), nullable=False, unique=True),
        Column("modified_at", Double, nullable=False),
        Column("status", String(16), nullable=False),
        Column("stage", String(16), nullable=False),
        Column("containers", JSON(none_as_null=True), nullable=False),
        Column("started_at", Double),
        Column("ended_at", Double),
        Column("stop_requested_at", Double),
        Column("failure_reason", Text),
        Index(None, "status", "stage", "created_at"),
        Index("ix_transform_jobs_stage", "stage", "created_at", "key"),
    ),
    TransformJobRecord,
)

PROGRESS = Table(
    "transform_progress",
    METADATA,
    Column("job_id", String(32), primary_key=True),
    Column("done_through", KeyText),
    Column("failed_objects", BigInteger, nullable=False),
    Column("failed_error", String(32)),
    Column("objects", BigInteger, nullable=False),
    Column("objects_known", BigInteger, nullable=False),
    Column("is_listed", Boolean, nullable=False),
    Column("records", BigInteger, nullable=False),
    Column("done_records", BigInteger, nullable=False),
    Column("failed_records", BigInteger, nullable=False),
    Column("input_bytes", BigInteger, nullable=False),
    Column("input_bytes_known", BigInteger, nullable=False),
    Column("max_concurrent", Integer),
    Column("max_payload_mb", Integer),
    Column("batch_strategy", String(16)),
    Column("updated_at", Double, nullable=False),
)

# Binary keys sort as in S3.
FINISHED_OBJECTS = Table(
    "transform_finished_objects",
    METADATA,
    Column("job_id", String(32), primary_key=True),
    Column("key", LargeBinary(1024), primary_key=True),
    Column("failed", Boolean, nullable=False),
)
"""Objects behind `done_through`, and failed ones that data capture asks for. As rows: a list would
be rewritten with each change, and there may be very many behind an object that takes long."""

get = TRANSFORM_JOBS.get
get_for_update = TRANSFORM_JOBS.get_for_update
list_page = TRANSFORM_JOBS.list_page
count_up_to = TRANSFORM_JOBS.count_up_to
counts = TRANSFORM_JOBS.counts

_COLUMNS = TRANSFORM_JOBS.table.c
_OLDEST_FIRST = (_COLUMNS.created_at, _COLUMNS.key)


def insert(connection: Connection, record: TransformJobRecord) -> None:
    """Inserts a job without progress. Raises AlreadyExists."""
    TRANSFORM_JOBS.insert(connection, record)
    rows.insert_new(connection, PROGRESS, TransformProgress(job_id=record.job_id))
    notify(connection, TRANSFORMS_CHANGED)


def update(connection: Connection, record: TransformJobRecord) -> bool:
    """Writes the whole record and wakes the reconciler; returns False if it is gone.

    Hazard: read it in the same transaction, by `get_for_update`.
    """
    notify(connection, TRANSFORMS_CHANGED)
    return TRANSFORM_JOBS.update(connection, record)


def save(connection: Connection, record: TransformJobRecord) -> None:
    """Like `update`, for the reconciler itself: nothing is woken."""
    TRANSFORM_JOBS.update(connection, record)


def active(connection: Connection, lock: bool = False) -> list[TransformJobRecord]:
    return rows.select_records(
        connection,
        TRANSFORM_JOBS.table,
        TransformJobRecord,
        _COLUMNS.stage == JobStage.ACTIVE,
        order=_OLDEST_FIRST,
        lock=lock,
    )


def next_waiting(
    connection: Connection, limit: int, lock: bool = False
) -> list[TransformJobRecord]:
    """Returns the jobs to start next, oldest first."""
    return rows.select_records(
        connection,
        TRANSFORM_JOBS.table,
        TransformJobRecord,
        _COLUMNS.stage == JobStage.WAITING,
        order=_OLDEST_FIRST,
        limit=limit,
        lock=lock,
    )


def progress_of(connection: Connection, job_ids: Iterable[str]) -> dict[str, TransformProgress]:
    wanted = list(job_ids)
    if not wanted:
        return {}
    records = rows.select_records(
        connection, PROGRESS, TransformProgress, PROGRESS.c.job_id.in_(wanted)
    )
    return {record.job_id: record for record in records}


def ended_ids(connection: Connection, job_ids: Iterable[str]) -> set[str]:
    """Returns those of jobs that have ended. Unknown jobs are none."""
    statement = select(_COLUMNS.job_id).where(
        _COLUMNS.job_id.in_(list(job_ids)), _COLUMNS.stage == JobStage.ENDED
    )
    return set(connection.execute(statement).scalars())


def save_finished(
    connection: Connection,
    progress: TransformProgress,
    keys: Mapping[str, bool],
    *,
    keeps_failed: bool,
) -> None:
    """Stores finished objects, and forgets those that `progress.done_through` has passed.

    Args:
        keys: whether each has failed. They may be stored already.
        keeps_failed: those that have failed are kept, as such.
    """
    through = progress.done_through
    values = [
        {"job_id": progress.job_id, "key": key.encode(), "failed": failed and keeps_failed}
        for key, failed in keys.items()
        if through is None or key > through or (failed and keeps_failed)
    ]
    if values:
        statement = rows.upsert(connection, FINISHED_OBJECTS).on_conflict_do_nothing()
        connection.execute(statement, values)
    columns = FINISHED_OBJECTS.c
    if through is not None:
        passed = [columns.job_id == progress.job_id, columns.key <= through.encode()]
        if keeps_failed:
            passed.append(columns.failed.is_(False))
        rows.delete_where(connection, FINISHED_OBJECTS, *passed)


def finished_objects(connection: Connection, job_id: str) -> dict[str, bool]:
    """Returns whether each has failed, of those that are stored, in the order of keys."""
    columns = FINISHED_OBJECTS.c
    statement = select(columns.key, columns.failed).where(columns.job_id == job_id)
    found = connection.execute(statement.order_by(columns.key))
    return {key.decode(): failed for key, failed in found}


def forget_finished(connection: Connection, job_id: str) -> None:
    rows.delete_where(connection, FINISHED_OBJECTS, FINISHED_OBJECTS.c.job_id == job_id)


def save_progress(connection: Connection, progress: TransformProgress) -> None:
    same = PROGRESS.c.job_id == progress.job_id
    connection.execute(PROGRESS.update().where(same).values(msgspec.to_builtins(progress)))
