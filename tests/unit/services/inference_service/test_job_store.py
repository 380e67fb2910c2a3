"""Rows of the services' jobs: counts, order and pages."""

import pytest

from sagehen.services.inference_service import job_store as store
from sagehen.services.inference_service.records import InferenceJobRecord, InferenceState

QUEUED, ACTIVE, ENDED = InferenceState.QUEUED, InferenceState.ACTIVE, InferenceState.ENDED


def job(name, state=QUEUED, kind="a", stage="dev", **fields):
    return InferenceJobRecord(
        job_name=name,
        stage=stage,
        type=kind,
        state=state,
        topic_arn="arn",
        definition={"x": 1},
        created_at=1.0,
        **fields,
    )


@pytest.fixture
def connection(any_database):
    with any_database.write() as connection:
        yield connection


def add(connection, *jobs):
    for one in jobs:
        store.add(connection, one)
    return list(jobs)


def test_a_job_comes_back_as_it_was(connection):
    (first,) = add(connection, job("j-1", ACTIVE, job_id="id-1", started_at=2.0))
    assert store.get(connection, "dev", "j-1") == first
    assert store.get(connection, "other", "j-1") is None
    assert store.by_job_id(connection, "id-1") == first
    assert store.by_job_id(connection, "id-2") is None
    assert not store.save(connection, job("gone"))


def test_taken_slots_are_counted_by_type(connection):
    add(connection, job("1", ACTIVE), job("2", ACTIVE), job("3", ACTIVE, "b"), job("4"))
    add(connection, job("5", ENDED), job("6", ACTIVE, stage="other"))
    assert store.active_by_type(connection, "dev") == {"a": 2, "b": 1}
    assert store.queued(connection, "dev") == 1
    assert sorted(store.stages(connection)) == ["dev", "other"]


def test_the_first_queued_job_of_each_type(connection):
    jobs = add(connection, job("1", ACTIVE), job("2", kind="b"), job("3"), job("4"))
    assert store.first_queued(connection, "dev") == [jobs[1], jobs[2]]
    assert [store.position(connection, one) for one in jobs[1:]] == [1, 2, 3]
    assert store.in_state(connection, "dev", ACTIVE) == [jobs[0]]


def test_pages_go_from_the_newest_on(connection):
    jobs = add(connection, *(job(str(number), kind="ab"[number % 2]) for number in range(5)))
    first = store.page(connection, "dev", None, 2)
    assert first == [jobs[4], jobs[3]]
    assert store.page(connection, "dev", "3", 9) == [jobs[2], jobs[1], jobs[0]]
    assert store.page(connection, "dev", None, 9, type="b") == [jobs[3], jobs[1]]


def test_an_active_job_without_a_training_job_is_lost(connection):
    (lost, _) = add(connection, job("1", ACTIVE, job_id="id-1"), job("2"))
    assert store.lost(connection, "dev") == [lost]


def test_old_jobs_are_forgotten_a_few_at_a_time(connection):
    add(connection, *(job(str(number), ENDED, ended_at=float(number)) for number in range(4)))
    add(connection, job("running", ACTIVE))
    assert store.forget(connection, "dev", 3.0, 2) == 2
    assert store.forget(connection, "dev", 3.0, 2) == 1
    assert [one.job_name for one in store.page(connection, "dev", None, 9)] == ["running", "3"]
