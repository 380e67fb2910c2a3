"""The table of training jobs."""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    JSON,
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Double,
    Index,
    Integer,
    Select,
    String,
    Table,
    Text,
    bindparam,
    or_,
    select,
)

from sagehen.frame.instance_types import instance_types
from sagehen.services.sagemaker.job_tables import JobStage, JobTable
from sagehen.services.sagemaker.training.records import TrainingJobRecord
from sagehen.state.database import notify
from sagehen.state.rows import METADATA

__all__ = [
    "JOBS_CHANGED",
    "TRAINING_JOBS",
    "active",
    "count_up_to",
    "counts",
    "delete",
    "due",
    "get",
    "get_for_update",
    "insert",
    "list_page",
    "next_waiting",
    "save",
    "shift_clock",
    "update",
]

JOBS_CHANGED = "training-jobs"
"""The database event for job operations."""

TRAINING_JOBS = JobTable(
    Table(
        "training_jobs",
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
        Column("transitions", JSON(none_as_null=True), nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("retries", Integer, nullable=False),
        Column("phases", Integer, nullable=False),
        Column("started_at", Double),
        Column("ended_at", Double),
        Column("run_seconds", Double, nullable=False),
        Column("failure_reason", Text),
        Column("stop_requested_at", Double),
        Column("ends_as", String(32), nullable=False),
        Column("gives_up_at", Double),
        Column("clock_shift", Double, nullable=False),
        Column("metrics", JSON(none_as_null=True), nullable=False),
        Column("artifacts", JSON(none_as_null=True), nullable=False),
        Index(None, "status", "stage", "created_at"),
        Index("ix_training_jobs_stage", "stage", "created_at", "key"),
        Index("ix_training_jobs_gives_up_at", "stage", "gives_up_at"),
    ),
    TrainingJobRecord,
)

get = TRAINING_JOBS.get
get_for_update = TRAINING_JOBS.get_for_update
delete = TRAINING_JOBS.delete
list_page = TRAINING_JOBS.list_page
count_up_to = TRAINING_JOBS.count_up_to
counts = TRAINING_JOBS.counts

_COLUMNS = TRAINING_JOBS.table.c
_FIXED = ("name", "arn", "created_at", "definition")
_CHANGEABLE = [name for name in TrainingJobRecord.__struct_fields__ if name not in _FIXED]
_SAVE = (
    TRAINING_JOBS.table.update()
    .where(_COLUMNS.job_id == bindparam("new_job_id"))
    .values({name: bindparam(f"new_{name}") for name in _CHANGEABLE if name != "job_id"})
)
Query = Select[Any]


def _query(*where: ColumnElement[bool], limited: bool = True) -> tuple[Query, Query]:
    """Returns a query, oldest first, and the same with locks. Made once: making it takes longer
    than running it."""
    columns = (_COLUMNS[name] for name in TrainingJobRecord.__struct_fields__)
    query = select(*columns).where(*where).order_by(_COLUMNS.created_at, _COLUMNS.key)
    if limited:
        query = query.limit(bindparam("most"))
    return query, query.with_for_update()


_WAITS = _COLUMNS.stage == JobStage.WAITING
_NOW: BindParameter[float] = bindparam("now", type_=Double)
_ACTIVE = _query(_COLUMNS.stage == JobStage.ACTIVE, limited=False)
_DUE = _query(_WAITS, _COLUMNS.gives_up_at <= _NOW)
_HAS_TIME = or_(_COLUMNS.gives_up_at.is_(None), _COLUMNS.gives_up_at > _NOW)
_NEXT = _query(_WAITS, _HAS_TIME)
_INSTANCE_TYPE = _COLUMNS.definition["ResourceConfig"]["InstanceType"].as_string()
_GPU_TYPES = [name for name, kind in instance_types().items() if kind.gpus]
_NEXT_WITHOUT_GPUS = _query(_WAITS, _HAS_TIME, _INSTANCE_TYPE.not_in(_GPU_TYPES))


def insert(connection: Connection, record: TrainingJobRecord) -> None:
    """Raises AlreadyExists."""
    TRAINING_JOBS.insert(connection, record)
    notify(connection, JOBS_CHANGED)


def update(connection: Connection, record: TrainingJobRecord) -> bool:
    """Writes the whole record; returns False if it is gone.

    Hazard: read it in the same transaction, by `get_for_update`.
    """
    notify(connection, JOBS_CHANGED)
    return TRAINING_JOBS.update(connection, record)


def active(connection: Connection, lock: bool = False) -> list[TrainingJobRecord]:
    return _read(connection, _ACTIVE, lock)


def due(
    connection: Connection, now: float, limit: int, lock: bool = False
) -> list[TrainingJobRecord]:
    """Returns WAITING jobs whose time is over."""
    return _read(connection, _DUE, lock, now=now, most=limit)


def next_waiting(
    connection: Connection,
    now: float,
    limit: int,
    *,
    without_gpus: bool = False,
    lock: bool = False,
) -> list[TrainingJobRecord]:
    """Returns the WAITING jobs to start next, oldest first.

    Args:
        without_gpus: only jobs of instance types without GPUs.
    """
    statements = _NEXT_WITHOUT_GPUS if without_gpus else _NEXT
    return _read(connection, statements, lock, now=now, most=limit)


def shift_clock(connection: Connection, seconds: float, since: float, now: float) -> None:
    """Keeps waiting times unchanged after the clock was set.

    Jobs created between `since` and `now` already have times of the new clock.
    """
    by_old_clock = or_(_COLUMNS.created_at < since, _COLUMNS.created_at > now)
    connection.execute(
        TRAINING_JOBS.table.update()
        .where(_COLUMNS.stage.in_((JobStage.WAITING, JobStage.ACTIVE)), by_old_clock)
        .where(_COLUMNS.gives_up_at > 0)
        .values(
            gives_up_at=_COLUMNS.gives_up_at + seconds,
            clock_shift=_COLUMNS.clock_shift + seconds,
        )
    )


def save(connection: Connection, records: Sequence[TrainingJobRecord]) -> None:
    """Writes jobs that were read and locked in the same transaction."""
    if records:
        rows = [msgspec.to_builtins(record) for record in records]
        connection.execute(
            _SAVE, [{f"new_{name}": row[name] for name in _CHANGEABLE} for row in rows]
        )


def _read(
    connection: Connection, statements: tuple[Query, Query], lock: bool, **parameters: float
) -> list[TrainingJobRecord]:
    rows = connection.execute(statements[lock], parameters)
    fields = TrainingJobRecord.__struct_fields__
    return [msgspec.convert(dict(zip(fields, row, strict=True)), TrainingJobRecord) for row in rows]
