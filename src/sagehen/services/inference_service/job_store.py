"""SQL for the services' jobs.

Counts and choices are reliable only while the service's row is locked (`service_store.get(…,
lock=True)`).
"""

from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, bindparam, delete, func, insert, select

from sagehen.services.inference_service.records import InferenceJobRecord, InferenceState
from sagehen.services.inference_service.tables import ACTIVE, JOBS, QUEUED
from sagehen.services.sagemaker.training.store import TRAINING_JOBS
from sagehen.state import rows

__all__ = [
    "active_by_type",
    "add",
    "by_job_id",
    "first_queued",
    "forget",
    "get",
    "in_state",
    "lost",
    "page",
    "position",
    "queued",
    "save",
    "stages",
]

_C = JOBS.c
_FIELDS = InferenceJobRecord.__struct_fields__

# Built once: building them takes longer than running them.
_OF_STAGE = _C.stage == bindparam("stage")
_TAKEN = select(_C.type, func.count()).where(_OF_STAGE, _C.state == ACTIVE).group_by(_C.type)
_WAITING = select(func.count()).select_from(JOBS).where(_OF_STAGE, _C.state == QUEUED)
_FIRSTS = (
    select(*(_C[field] for field in _FIELDS))
    .where(
        _C.sequence.in_(
            select(func.min(_C.sequence)).where(_OF_STAGE, _C.state == QUEUED).group_by(_C.type)
        )
    )
    .order_by(_C.sequence)
)
_BY_JOB_ID = select(*(_C[field] for field in _FIELDS)).where(_C.job_id == bindparam("job_id"))


def add(connection: Connection, record: InferenceJobRecord) -> None:
    connection.execute(insert(JOBS).values(**msgspec.to_builtins(record)))


def save(connection: Connection, record: InferenceJobRecord) -> bool:
    """Overwrites a row; returns False where it is gone."""
    return rows.update_where(connection, JOBS, record, _C.job_name == record.job_name)


def get(connection: Connection, stage: str, job_name: str) -> InferenceJobRecord | None:
    return _find(connection, (_C.stage == stage) & (_C.job_name == job_name))


def by_job_id(connection: Connection, job_id: str) -> InferenceJobRecord | None:
    """Returns None where no service made the training job."""
    records = _read(connection, _BY_JOB_ID, job_id=job_id)
    return records[0] if records else None


def active_by_type(connection: Connection, stage: str) -> dict[str, int]:
    """Counts taken slots by exact type."""
    return {row[0]: row[1] for row in connection.execute(_TAKEN, {"stage": stage})}


def queued(connection: Connection, stage: str) -> int:
    return connection.scalar(_WAITING, {"stage": stage}) or 0


def first_queued(connection: Connection, stage: str) -> list[InferenceJobRecord]:
    """Returns each type's first queued job, longest waiting first."""
    return _read(connection, _FIRSTS, stage=stage)


def position(connection: Connection, job: InferenceJobRecord) -> int:
    """Counts from 1, within the job's service."""
    where = (_C.stage == job.stage) & (_C.state == QUEUED) & (_C.sequence <= _sequence(job))
    return connection.scalar(select(func.count()).select_from(JOBS).where(where)) or 0


def in_state(connection: Connection, stage: str, state: InferenceState) -> list[InferenceJobRecord]:
    """Returns either queued or active jobs, oldest first."""
    condition = {InferenceState.QUEUED: QUEUED, InferenceState.ACTIVE: ACTIVE}[state]
    where = (_C.stage == stage) & (_C.state == condition)
    return rows.select_records(connection, JOBS, InferenceJobRecord, where, order=[_C.sequence])


def stages(connection: Connection) -> list[str]:
    """Includes stages of deleted services."""
    return list(connection.scalars(select(_C.stage).distinct()))


def lost(connection: Connection, stage: str) -> list[InferenceJobRecord]:
    """Returns active jobs whose training job is over."""
    table = TRAINING_JOBS.table
    running = (table.c.job_id == _C.job_id) & table.c.status.in_(("InProgress", "Stopping"))
    where = (_C.stage == stage) & (_C.state == ACTIVE)
    holding = ~select(table.c.job_id).where(running).exists()
    return rows.select_records(connection, JOBS, InferenceJobRecord, where, holding)


def page(
    connection: Connection, stage: str, before: str | None, limit: int, **equal: str
) -> list[InferenceJobRecord]:
    """Returns jobs, newest first, following the job `before`; `equal` are values by column (`type`,
    `state`)."""
    where = [_C.stage == stage, *(_C[name] == value for name, value in equal.items())]
    if before is not None:
        behind = select(_C.sequence).where(_C.job_name == before).scalar_subquery()
        where.append(_C.sequence < behind)
    return rows.select_records(
        connection, JOBS, InferenceJobRecord, *where, order=[_C.sequence.desc()], limit=limit
    )


def forget(connection: Connection, stage: str, before: float, limit: int) -> int:
    """Deletes jobs that ended before a time; returns how many."""
    old = (_C.stage == stage) & (_C.ended_at.is_not(None)) & (_C.ended_at < before)
    some = select(_C.sequence).where(old).limit(limit)
    return connection.execute(delete(JOBS).where(_C.sequence.in_(some))).rowcount


def _read(
    connection: Connection, statement: Select[Any], **parameters: str
) -> list[InferenceJobRecord]:
    return [
        msgspec.convert(dict(zip(_FIELDS, row, strict=True)), InferenceJobRecord)
        for row in connection.execute(statement, parameters)
    ]


def _sequence(job: InferenceJobRecord) -> ColumnElement[Any]:
    return select(_C.sequence).where(_C.job_name == job.job_name).scalar_subquery()


def _find(connection: Connection, where: ColumnElement[bool]) -> InferenceJobRecord | None:
    records = rows.select_records(connection, JOBS, InferenceJobRecord, where)
    return records[0] if records else None
