"""The one way in which a training job is asked to end."""

from sqlalchemy import Connection

from sagehen.domain.names import ArnMaker
from sagehen.domain.training import JobStage, JobStatus, SecondaryStatus, TrainingJobRecord
from sagehen.domain.training_course import Course
from sagehen.domain.training_events import training_event
from sagehen.store import tags, training_jobs
from sagehen.store.events import put_event

__all__ = ["stop_training_job_row"]


def stop_training_job_row(
    connection: Connection, record: TrainingJobRecord, arns: ArnMaker, now: float
) -> None:
    """Ask for a job to end, in the caller's transaction, in which `record` was read, locked.

    One that has ended, or was asked before, is left as it is.
    """
    if record.status is not JobStatus.IN_PROGRESS:
        return
    course = Course(record)
    course.stop(now, SecondaryStatus.STOPPED)
    if record.stage is JobStage.WAITING:
        # Nothing runs that would have to end first: it is overdue.
        course.note(gives_up_at=0.0)
    training_jobs.update(connection, course.record)
    labels = tags.get(connection, record.arn)
    for state in course.moves:
        put_event(connection, training_event(state, labels, arns, now))
