"""The rows of transform jobs and of their progress. With either database."""

import msgspec
import pytest

from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.transform import store as transform_jobs
from sagehen.services.sagemaker.transform.job_records import TransformProgress
from support.transform_jobs import BEGAN, active_transform, waiting_transform


@pytest.fixture
def state(any_database):
    """`state(job, …)` puts jobs in; it is the database too."""

    def put(*records):
        with any_database.write() as connection:
            for record in records:
                transform_jobs.insert(connection, record)

    vars(put)["database"] = any_database
    return put


def test_all_of_a_job_comes_back(state):
    whole = waiting_transform(
        "Whole",
        status=JobStatus.FAILED,
        stage=JobStage.ENDED,
        started_at=1.5,
        ended_at=2.5,
        stop_requested_at=2.0,
        failure_reason="ClientError: no",
    )
    state(whole)
    with state.database.read() as connection:
        assert transform_jobs.get(connection, "whole") == whole


def test_all_of_its_progress_comes_back(state):
    state(waiting_transform("a"), waiting_transform("b"))
    progress = TransformProgress(
        job_id="ida",
        done_through='in/é \x00"1',
        failed_objects=1,
        failed_error="ClientError",
        objects=2**40,
        is_listed=True,
        input_bytes_known=2**50,
        max_concurrent=2,
        max_payload_mb=6,
        batch_strategy="MultiRecord",
        updated_at=BEGAN,
    )
    with state.database.write() as connection:
        transform_jobs.save_progress(connection, progress)
    with state.database.read() as connection:
        read = transform_jobs.progress_of(connection, ["ida", "idb"])
        assert read == {"ida": progress, "idb": TransformProgress(job_id="idb")}
        assert transform_jobs.progress_of(connection, []) == {}


def test_jobs_that_have_ended_are_told_from_those_that_run_or_are_unknown(state):
    state(waiting_transform("ended", stage=JobStage.ENDED), active_transform("runs"))
    with state.database.read() as connection:
        ended = transform_jobs.ended_ids(connection, {"idended", "idruns", "idunknown"})
    assert ended == {"idended"}


def test_finished_objects_are_kept_until_all_before_them_are_finished_too(state):
    with state.database.write() as connection:

        def save(through, keys, job_id="ida"):
            progress = TransformProgress(job_id=job_id, done_through=through)
            transform_jobs.save_finished(connection, progress, keys, keeps_failed=False)
            return transform_jobs.finished_objects(connection, "ida")

        keys = {"\U0001f600": False, "in/\x00c": False, "\uffff": True, "é": False}
        assert list(save(None, keys)) == sorted(keys, key=str.encode)
        assert save(None, {"in/\x00c": False, "in/b": True}).keys() == {*keys, "in/b"}
        # A key that the mark has passed is not stored.
        assert save("in/\x00c", {"a": False, "in/d": False}).keys() == {
            *keys,
            "in/b",
            "in/d",
        } - {"in/\x00c"}
        assert save("é", {}).keys() == {"\uffff", "\U0001f600"}
        assert save("\U0001f600", {}, "idb").keys() == {"\uffff", "\U0001f600"}
        transform_jobs.forget_finished(connection, "ida")
        assert transform_jobs.finished_objects(connection, "ida") == {}


def test_failed_objects_are_kept_on_request(state):
    progress = TransformProgress(job_id="ida", done_through="c")
    with state.database.write() as connection:
        for keys in ({"a": True, "b": False, "d": True}, {"e": False}):
            transform_jobs.save_finished(connection, progress, keys, keeps_failed=True)
        found = transform_jobs.finished_objects(connection, "ida")
    assert found == {"a": True, "d": True, "e": False}


def test_the_oldest_come_first(state):
    jobs = [waiting_transform(name, created_at=at) for name, at in (("b", 2.0), ("a", 1.0))]
    state(*jobs, active_transform("z", created_at=0.5), active_transform("y", created_at=3.0))
    with state.database.write() as connection:
        waiting = transform_jobs.next_waiting(connection, 9, lock=True)
        assert [job.name for job in waiting] == ["a", "b"]
        assert len(transform_jobs.next_waiting(connection, 1)) == 1
        assert [job.name for job in transform_jobs.active(connection, lock=True)] == ["z", "y"]


def test_jobs_that_have_not_ended_are_counted(state):
    ended = {"stage": JobStage.ENDED, "status": JobStatus.STOPPED}
    stopping = {"status": JobStatus.STOPPING}
    state(
        waiting_transform("a"),
        waiting_transform("b"),
        active_transform("c", **stopping),
        waiting_transform("d", **ended),
    )
    with state.database.read() as connection:
        assert transform_jobs.counts(connection) == {
            (JobStatus.IN_PROGRESS, JobStage.WAITING): 2,
            (JobStatus.STOPPING, JobStage.ACTIVE): 1,
        }
        assert transform_jobs.count_up_to(connection, 9, JobStage.WAITING) == 2
        assert transform_jobs.count_up_to(connection, 1, JobStage.WAITING) == 1


def test_listeners_hear_of_new_and_changed_jobs_but_not_of_the_reconciler_s_own_changes(state):
    heard = []
    state.database.listen(transform_jobs.TRANSFORMS_CHANGED, heard.append)
    state(waiting_transform())
    assert heard == [""]
    with state.database.write() as connection:
        job = transform_jobs.get_for_update(connection, "job")
        transform_jobs.save(connection, msgspec.structs.replace(job, started_at=1.0))
    assert heard == [""]
    with state.database.write() as connection:
        transform_jobs.update(connection, job)
    assert heard == ["", ""]
