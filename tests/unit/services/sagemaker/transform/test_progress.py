"""What a runner's messages add to a job's progress, and how progress is shown."""

import msgspec
import pytest

from sagehen.services.sagemaker.job_tables import JobStatus
from sagehen.services.sagemaker.transform.job_records import TransformProgress
from sagehen.services.sagemaker.transform.progress import (
    absorb,
    describe_progress,
    finished_keys,
)
from sagehen.services.sagemaker.transform.runner_messages import (
    Done,
    FailedObject,
    Progress,
    RunnerEnded,
    RunnerLog,
    RunnerSettings,
)
from support.transform_jobs import BEGAN, active_transform, done

NEW = TransformProgress(job_id="idjob")


def failed(key, error="ClientError"):
    return FailedObject(key=key, error=error, message="400")


def counted(objects=1, records=5, input_bytes=10, **changes):
    given = {"objects_known": 4, "is_listed": True, "input_bytes_known": 40, **changes}
    return Progress(objects=objects, records=records, input_bytes=input_bytes, **given)


def test_finished_keys_are_told_apart_by_whether_they_failed():
    messages = [done("c"), failed("b"), done("a", "d", through="a", records=0)]
    assert finished_keys(messages) == {"a": False, "b": True, "c": False, "d": False}
    assert absorb(NEW, messages, BEGAN).done_through == "a"


def test_the_last_of_all_marks_is_that_of_the_last_bytes():
    keys = ["\U0001f600", "\uffff", "é", "z"]
    after = absorb(NEW, [done(key, through=key) for key in keys], BEGAN)
    assert after.done_through == max(keys, key=str.encode)


def test_a_message_without_a_mark_leaves_it_and_an_older_mark_does_not_go_back():
    after = absorb(NEW, [done("d", through="d"), done("f"), done("b", through="b")], BEGAN)
    assert (after.done_through, after.updated_at) == ("d", BEGAN)


def test_records_of_finished_objects_add_up():
    message = Done(keys=("a",), records=3, input_bytes=9, failed_records=1)
    after = absorb(NEW, [message, message], BEGAN)
    assert (after.done_records, after.failed_records) == (6, 2)


def test_a_failed_object_is_finished_and_the_first_error_stays():
    messages = [failed("b"), failed("c", "AlgorithmError"), done("a", through="c")]
    after = absorb(NEW, messages, BEGAN)
    assert (after.failed_objects, after.failed_error) == (2, "ClientError")


def test_the_resolved_settings_and_counts_are_kept():
    settings = RunnerSettings(max_concurrent=2, max_payload_mb=6, batch_strategy="MultiRecord")
    after = absorb(NEW, [settings, counted()], BEGAN)
    assert (after.max_concurrent, after.max_payload_mb) == (2, 6)
    assert (after.objects, after.objects_known, after.records) == (1, 4, 5)


@pytest.mark.parametrize("message", [RunnerLog(instance_id=None, line="x"), RunnerEnded()])
def test_what_is_not_stored_changes_nothing(message):
    assert absorb(NEW, [message], BEGAN) is NEW


def shown(progress, now=BEGAN + 20, **changes):
    return describe_progress(active_transform(started_at=BEGAN + 10, **changes), progress, now)


def test_rate_and_time_left_follow_from_the_bytes():
    body = shown(absorb(NEW, [counted(records=50)], BEGAN))
    assert (body["records_per_second"], body["bytes_per_second"]) == (5.0, 1.0)
    assert body["seconds_left"] == 30.0


@pytest.mark.parametrize(
    "case",
    [
        {"is_listed": False},
        {"input_bytes": 0},
    ],
)
def test_the_time_left_is_unknown_before_the_listing_ends_or_anything_is_done(case):
    assert shown(absorb(NEW, [counted(**case)], BEGAN))["seconds_left"] is None


def test_an_ended_job_has_its_own_duration():
    progress = msgspec.structs.replace(NEW, records=30, input_bytes=10, is_listed=True)
    body = shown(progress, now=BEGAN + 9999, ended_at=BEGAN + 13, status=JobStatus.COMPLETED)
    assert (body["running_seconds"], body["records_per_second"]) == (3.0, 10.0)
    assert body["seconds_left"] is None


def test_a_job_that_waits_has_no_rate():
    body = describe_progress(active_transform(), NEW, BEGAN + 5)
    assert (body["records_per_second"], body["running_seconds"]) == (None, 0.0)
