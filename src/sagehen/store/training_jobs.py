"""The training jobs: one row each, from CreateTrainingJob to DeleteTrainingJob."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import (
    JSON,
    Column,
    ColumnElement,
    Connection,
    Double,
    Index,
    Integer,
    String,
    Table,
    Text,
    bindparam,
    func,
    or_,
    select,
)

from sagehen.domain.training import JobStage, TrainingJobRecord
from sagehen.store import rows
from sagehen.store.database import tell
from sagehen.store.named import Named
from sagehen.store.tables import METADATA

__all__ = [
    "JOBS_CHANGED",
    "TRAINING_JOBS",
    "active",
    "count_up_to",
    "delete",
    "due",
    "get",
    "get_for_update",
    "insert",
    "list_page",
    "next_waiting",
    "save",
    "update",
]

JOBS_CHANGED = "training-jobs"
"""What listeners of the database hear when an operation has left something to be done."""

TRAINING_JOBS = Named(
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
        Column("metrics", JSON(none_as_null=True), nullable=False),
        Column("artifacts", JSON(none_as_null=True), nullable=False),
        Index(None, "status", "created_at"),
        Index("ix_training_jobs_stage", "stage", "created_at", "key"),
        Index("ix_training_jobs_gives_up_at", "stage", "gives_up_at"),
    ),
    TrainingJobRecord,
)

get = TRAINING_JOBS.get
get_for_update = TRAINING_JOBS.get_for_update
delete = TRAINING_JOBS.delete
list_page = TRAINING_JOBS.list_page

_COLUMNS = TRAINING_JOBS.table.c
_FIXED = ("name", "arn", "created_at", "definition")
"""What does not change while a job runs."""
_KEPT = [name for name in TrainingJobRecord.__struct_fields__ if name not in _FIXED]
_SAVE = (
    TRAINING_JOBS.table.update()
    .where(_COLUMNS.job_id == bindparam("new_job_id"))
    .values({name: bindparam(f"new_{name}") for name in _KEPT if name != "job_id"})
)


def insert(connection: Connection, record: TrainingJobRecord) -> None:
    """Add a job, and have it begun; raises AlreadyExists."""
    TRAINING_JOBS.insert(connection, record)
    tell(connection, JOBS_CHANGED)


def update(connection: Connection, record: TrainingJobRecord) -> bool:
    """Write all of `record` over what is stored, and have it looked at; False where it is gone.

    Hazard: read what you change in the same transaction, by `get_for_update`.
    """
    tell(connection, JOBS_CHANGED)
    return TRAINING_JOBS.update(connection, record)


def count_up_to(connection: Connection, limit: int, *stages: JobStage) -> int:
    """How many jobs are in one of `stages`; `limit` where they are more."""
    found = select(_COLUMNS.key).where(_COLUMNS.stage.in_(stages)).limit(limit)
    return connection.execute(select(func.count()).select_from(found.subquery())).scalar_one()


def active(connection: Connection, lock: bool = False) -> list[TrainingJobRecord]:
    """The jobs with an attempt at the agent, or on its way there; the oldest first."""
    return _select(connection, _COLUMNS.stage == JobStage.ACTIVE, lock=lock)


def due(
    connection: Connection, now: float, limit: int, lock: bool = False
) -> list[TrainingJobRecord]:
    """Waiting jobs that are to wait no longer."""
    waiting = _COLUMNS.stage == JobStage.WAITING
    return _select(connection, waiting, _COLUMNS.gives_up_at <= now, limit=limit, lock=lock)


def next_waiting(
    connection: Connection, now: float, limit: int, lock: bool = False
) -> list[TrainingJobRecord]:
    """The jobs that are to be begun next, the oldest first."""
    waiting = _COLUMNS.stage == JobStage.WAITING
    has_time = or_(_COLUMNS.gives_up_at.is_(None), _COLUMNS.gives_up_at > now)
    return _select(connection, waiting, has_time, limit=limit, lock=lock)


def save(connection: Connection, records: Sequence[TrainingJobRecord]) -> None:
    """Write where jobs stand. They must have been read in the same transaction, locked."""
    if records:
        told = [msgspec.to_builtins(record) for record in records]
        connection.execute(_SAVE, [{f"new_{name}": one[name] for name in _KEPT} for one in told])


def _select(
    connection: Connection,
    *where: ColumnElement[bool],
    limit: int | None = None,
    lock: bool = False,
) -> list[TrainingJobRecord]:
    table, kind = TRAINING_JOBS.table, TrainingJobRecord
    order = [table.c.created_at, table.c.key]
    return rows.select_records(connection, table, kind, *where, order=order, limit=limit, lock=lock)
