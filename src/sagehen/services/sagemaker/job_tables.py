"""The statuses, stages and tables that training and transform jobs share."""

from enum import StrEnum
from typing import TypeVar

from sqlalchemy import Connection, func, select

from sagehen.frame.named_records import NamedRecord, NamedTable

__all__ = ["JobStage", "JobStatus", "JobTable"]


class JobStatus(StrEnum):
    """SageMaker's TrainingJobStatus and TransformJobStatus.

    InProgress ─► Completed, Failed        InProgress ─► Stopping ─► Stopped
    """

    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"

    @property
    def is_final(self) -> bool:
        return self not in (JobStatus.IN_PROGRESS, JobStatus.STOPPING)


class JobStage(StrEnum):
    """The reconciler's task with a job."""

    WAITING = "waiting"
    """Waits for room or, where it has one, for its time limit."""
    ACTIVE = "active"
    """Its containers run or are wanted, or the job is to be stopped."""
    ENDED = "ended"


Record = TypeVar("Record", bound=NamedRecord)


class JobTable(NamedTable[Record]):
    """Jobs by name. `table` has the columns `status` and `stage`, and an index on both."""

    def count_up_to(self, connection: Connection, limit: int, *stages: JobStage) -> int:
        """Counts no further than `limit`."""
        columns = self.table.c
        keys = select(columns.key).where(columns.stage.in_(stages)).limit(limit)
        return connection.execute(select(func.count()).select_from(keys.subquery())).scalar_one()

    def counts(self, connection: Connection) -> dict[tuple[JobStatus, JobStage], int]:
        """Counts jobs that have not ended, by an index."""
        columns = (self.table.c.status, self.table.c.stage)
        going_on = columns[0].in_([status for status in JobStatus if not status.is_final])
        statement = select(*columns, func.count()).where(going_on).group_by(*columns)
        return {
            (JobStatus(status), JobStage(stage)): count
            for status, stage, count in connection.execute(statement)
        }
