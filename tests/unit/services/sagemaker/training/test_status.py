"""The steps of a job through its statuses: times, messages, and how many are kept."""

import pytest

from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.training.records import SecondaryStatus
from sagehen.services.sagemaker.training.status import (
    LONGEST_REASON,
    MAX_TRANSITIONS,
    JobUpdate,
)
from support.training_jobs import BEGAN, running_job


def statuses(update: JobUpdate) -> list[str]:
    return [transition.status.value for transition in update.record.transitions]


def test_a_move_ends_the_last_transition_and_begins_another() -> None:
    update = JobUpdate(running_job())
    update.move(SecondaryStatus.DOWNLOADING, BEGAN + 5)
    before, after = update.record.transitions
    assert (before.ended_at, after.started_at, after.ended_at) == (BEGAN + 5, BEGAN + 5, None)
    assert after.message == "Downloading input data"
    assert update.record.modified_at == BEGAN + 5
    assert update.moves == [update.record]
    assert statuses(JobUpdate(update.stored)) == ["Starting"], "the stored record is as it was"


def test_a_clock_that_was_set_back_makes_no_time_go_back() -> None:
    update = JobUpdate(running_job())
    update.move(SecondaryStatus.TRAINING, BEGAN - 100)
    assert update.record.transitions[-1].started_at == BEGAN
    assert update.record.modified_at == BEGAN


def test_the_first_and_the_newest_transitions_are_kept() -> None:
    update = JobUpdate(running_job())
    for number in range(2 * MAX_TRANSITIONS):
        update.move(SecondaryStatus.INTERRUPTED, BEGAN + number, message=str(number))
    transitions = update.record.transitions
    assert len(transitions) == MAX_TRANSITIONS + 1
    assert transitions[0].status is SecondaryStatus.STARTING
    assert transitions[-1].message == str(2 * MAX_TRANSITIONS - 1)


def test_a_job_is_stopped_once() -> None:
    update = JobUpdate(running_job())
    update.stop(BEGAN + 1, SecondaryStatus.STOPPED)
    update.stop(BEGAN + 2, SecondaryStatus.MAX_RUNTIME_EXCEEDED)
    assert statuses(update) == ["Starting", "Stopping"]
    assert (update.record.status, update.record.ends_as) == (
        JobStatus.STOPPING,
        SecondaryStatus.STOPPED,
    )
    assert update.record.stop_requested_at == BEGAN + 1


@pytest.mark.parametrize(
    ("last", "status"),
    [
        (SecondaryStatus.COMPLETED, JobStatus.COMPLETED),
        (SecondaryStatus.FAILED, JobStatus.FAILED),
        (SecondaryStatus.MAX_WAIT_TIME_EXCEEDED, JobStatus.STOPPED),
    ],
)
def test_the_final_transition_ends_where_it_begins(
    last: SecondaryStatus, status: JobStatus
) -> None:
    update = JobUpdate(running_job(gives_up_at=BEGAN + 99))
    update.end(last, BEGAN + 9, "reason" + "!" * LONGEST_REASON)
    record = update.record
    assert (record.status, record.stage, record.ended_at) == (status, JobStage.ENDED, BEGAN + 9)
    assert record.gives_up_at is None
    assert record.failure_reason is not None
    assert len(record.failure_reason) == LONGEST_REASON
    final = record.transitions[-1]
    assert (final.started_at, final.ended_at) == (BEGAN + 9, BEGAN + 9)
    assert update.moves == [record]
