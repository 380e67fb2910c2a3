"""The rows of training jobs, and which of them a pass reads. With either database."""

import msgspec
import pytest

from sagehen.frame.job_specs import JobMetric
from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.training.records import SecondaryStatus, Transition
from sagehen.services.sagemaker.training.store import JOBS_CHANGED
from support.training_jobs import BEGAN, waiting_job

ACTIVE, WAITING, ENDED = JobStage.ACTIVE, JobStage.WAITING, JobStage.ENDED


@pytest.fixture
def state(any_database):
    """`state(job, …)` puts jobs in; it is the database too."""

    def put(*records):
        with any_database.write() as connection:
            for record in records:
                training_jobs.insert(connection, record)

    vars(put)["database"] = any_database
    return put


def job(name, created_at=BEGAN, **changes):
    return waiting_job(name, created_at=created_at, **changes)


def names(state, read, *given):
    with state.database.write() as connection:
        return [one.name for one in read(connection, *given, lock=True)]


def test_all_of_a_job_comes_back(state):
    whole = job(
        "Whole",
        status=JobStatus.FAILED,
        stage=ENDED,
        attempt=2,
        retries=1,
        phases=3,
        started_at=1.5,
        ended_at=2.5,
        run_seconds=0.5,
        failure_reason="AlgorithmError: no",
        stop_requested_at=2.0,
        ends_as=SecondaryStatus.MAX_WAIT_TIME_EXCEEDED,
        gives_up_at=9.5,
        metrics=(JobMetric(name="loss", value=0.1, at=1.0),),
        artifacts=("model.tar.gz",),
    )
    state(whole)
    with state.database.read() as connection:
        assert training_jobs.get(connection, "whole") == whole


def test_what_a_pass_saves_is_all_but_what_was_asked_for(state):
    state(job("a"), job("b"))
    with state.database.write() as connection:
        (a, b) = training_jobs.next_waiting(connection, BEGAN, 9, lock=True)
        changed = msgspec.structs.replace(
            a,
            stage=ACTIVE,
            attempt=1,
            definition={},
            transitions=(
                *a.transitions,
                Transition(status=SecondaryStatus.DOWNLOADING, started_at=BEGAN + 1),
            ),
        )
        training_jobs.save(connection, [changed])
        training_jobs.save(connection, [])
    with state.database.read() as connection:
        expected = msgspec.structs.replace(changed, definition=a.definition)
        assert training_jobs.get(connection, "a") == expected
        assert training_jobs.get(connection, "b") == b


def test_those_that_run_and_those_that_wait_the_oldest_first(state):
    state(
        job("new", BEGAN + 2),
        job("old", BEGAN + 1),
        job("runs-later", BEGAN + 4, stage=ACTIVE),
        job("runs", BEGAN + 3, stage=ACTIVE),
        job("ended", stage=ENDED, status=JobStatus.COMPLETED),
    )
    assert names(state, training_jobs.active) == ["runs", "runs-later"]
    assert names(state, training_jobs.next_waiting, BEGAN, 9) == ["old", "new"]
    assert names(state, training_jobs.next_waiting, BEGAN, 1) == ["old"]


def test_those_without_gpus_may_overtake_others(state):
    gpus = {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1}
    state(job("gpus", ResourceConfig=gpus), job("none", BEGAN + 1))
    with state.database.read() as connection:
        (only,) = training_jobs.next_waiting(connection, BEGAN, 9, without_gpus=True)
    assert only.name == "none"


def test_whose_time_to_wait_is_over(state):
    state(
        job("ever"),
        job("soon", gives_up_at=BEGAN + 10),
        job("now", gives_up_at=BEGAN + 5),
        job("runs", gives_up_at=BEGAN, stage=ACTIVE),
    )
    assert names(state, training_jobs.due, BEGAN + 5, 9) == ["now"]
    assert names(state, training_jobs.next_waiting, BEGAN + 5, 9) == ["ever", "soon"]


def test_how_many_go_on(state):
    ended = {"stage": ENDED, "status": JobStatus.COMPLETED}
    stopping = {"stage": ACTIVE, "status": JobStatus.STOPPING}
    state(job("a"), job("b"), job("c", stage=ACTIVE), job("d", **ended), job("e", **stopping))
    with state.database.read() as connection:
        assert training_jobs.counts(connection) == {
            (JobStatus.IN_PROGRESS, WAITING): 2,
            (JobStatus.IN_PROGRESS, ACTIVE): 1,
            (JobStatus.STOPPING, ACTIVE): 1,
        }
        assert training_jobs.count_up_to(connection, 9, WAITING, ACTIVE) == 4
        assert training_jobs.count_up_to(connection, 2, WAITING, ACTIVE) == 2
        assert training_jobs.count_up_to(connection, 9, WAITING) == 2


def test_who_listens_hears_of_what_is_asked_and_not_of_what_a_pass_does(state):
    heard = []
    state.database.listen(JOBS_CHANGED, heard.append)
    state(job("a"))
    assert heard == [""]
    with state.database.write() as connection:
        training_jobs.save(connection, training_jobs.next_waiting(connection, BEGAN, 1))
    assert heard == [""]
    with state.database.write() as connection:
        record = training_jobs.get_for_update(connection, "a")
        assert training_jobs.update(connection, record)
    assert heard == ["", ""]
