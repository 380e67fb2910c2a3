"""Passes over the training jobs of a state."""

import math

import msgspec
import pytest
from sqlalchemy import event, select

from sagehen.frame import tags
from sagehen.frame.arns import ArnMaker
from sagehen.frame.job_specs import JobMetric, JobOutcome
from sagehen.services.monitoring.cloudwatch.sample_store import SAMPLES, SERIES
from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.training.operations import stop_training_job_row
from sagehen.services.sagemaker.training.records import SecondaryStatus
from sagehen.state import leases
from sagehen.state.leases import LeaseLost
from support.training_jobs import BEGAN, report_of, running_job, spot, waiting_job

ARNS = ArnMaker("000000000000", "us-east-1")
COMPLETED = JobOutcome.COMPLETED


def waiting(count: int, first: int = 0):
    """So many jobs, each created a second after the one before."""
    numbers = range(first, first + count)
    return [waiting_job(f"j{n:04}", created_at=BEGAN + n, modified_at=BEGAN + n) for n in numbers]


def test_the_oldest_are_begun_as_many_as_may_run(passes):
    passes.insert(*reversed(waiting(4)))
    asks = passes.take()
    assert [spec.job_name for spec in asks.put] == ["j0000", "j0001"]
    assert [passes.get(f"j000{n}").stage for n in range(4)] == [
        *[JobStage.ACTIVE] * 2,
        *[JobStage.WAITING] * 2,
    ]


def test_none_is_begun_while_there_is_no_agent(passes):
    passes.insert(waiting_job())
    assert passes.take(away=True).put == ()
    assert passes.get().stage is JobStage.WAITING


def test_where_one_ends_the_next_begins_at_once(passes):
    passes.insert(*waiting(3))
    first = passes.take().put[0]
    passes.view.note_accepted(first.attempt_id)
    asks = passes.take(report_of(first.attempt_id, 4, COMPLETED), report_of("idj0001-1", 3))
    assert [spec.job_name for spec in asks.put] == ["j0002"]
    assert asks.delete == (first.attempt_id,)
    assert passes.secondary("j0000", "j0001", "j0002") == ["Completed", "Training", "Starting"]


def test_a_job_that_waits_for_gpus_takes_no_slot_from_jobs_without(passes):
    passes.insert(*waiting(1), *(on_gpus(job) for job in waiting(2, 1)), *waiting(3, 3))
    assert len(passes.take().put) == 2
    runs, waits = report_of("idj0000-1", 3), report_of("idj0001-1", 1, waits_for_gpus=True)
    passes.take(runs, waits)
    assert passes.secondary("j0001", "j0002", "j0003") == ["Starting", "Starting", "Starting"]
    # j0002 would only wait behind j0001.
    stages = [passes.get(f"j000{number}").stage for number in range(6)]
    assert stages == [*[JobStage.ACTIVE] * 2, JobStage.WAITING, JobStage.ACTIVE] + (
        [JobStage.WAITING] * 2
    )
    # With its GPUs it counts again.
    third = report_of("idj0003-1", 3)
    assert passes.take(runs, report_of("idj0001-1", 1), third).put == ()
    passes.take(report_of("idj0000-1", 4, COMPLETED), report_of("idj0001-1", 3), third)
    assert passes.get("j0002").stage is JobStage.WAITING


def on_gpus(job):
    resources = {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1}
    return msgspec.structs.replace(job, definition=job.definition | {"ResourceConfig": resources})


def test_an_attempt_is_asked_for_until_the_agent_took_it(passes):
    passes.insert(running_job())
    assert len(passes.take().put) == 1
    assert len(passes.take().put) == 1
    passes.view.note_accepted("idjob-1")
    assert passes.take().put == ()
    # Another agent comes: it knows of nothing that its predecessor took.
    passes.take(away=True)
    assert len(passes.take().put) == 1


def test_an_attempt_that_was_seen_and_is_gone_was_lost_with_its_agent(passes):
    passes.insert(running_job())
    passes.take(report_of("idjob-1", 1))
    asks = passes.take()
    assert [spec.attempt_id for spec in asks.put] == ["idjob-2"]
    job = passes.get()
    assert [one.status.value for one in job.transitions] == ["Starting", "Restarting", "Starting"]


def test_a_control_that_comes_back_knows_by_the_row_that_it_was_seen(passes):
    passes.insert(running_job(phases=2))
    assert [spec.attempt_id for spec in passes.take().put] == ["idjob-2"]


def test_what_the_agent_refuses_fails_the_job_once(passes):
    passes.insert(running_job())
    passes.view.look({})
    passes.view.note_refused("idjob-1", "No such image.")
    asks = passes.take()
    assert (asks.put, asks.delete) == ((), ())
    job = passes.get()
    assert (job.status, job.failure_reason) == (JobStatus.FAILED, "ClientError: No such image.")
    assert len(passes.ends) == 1


def test_attempts_that_no_job_is_at_are_dropped(passes):
    passes.insert(running_job(attempt=2))
    stray = report_of("idgone-1", 3)
    earlier = report_of("idjob-1", 3)
    asks = passes.take(stray, earlier, report_of("idjob-2", 3))
    assert sorted(asks.delete) == ["idgone-1", "idjob-1"]
    passes.view.note_requested("delete", "idgone-1")
    assert passes.take(stray, report_of("idjob-2", 3)).delete == ()


def test_a_job_that_is_to_stop_is_stopped_until_the_agent_says_that_it_does(passes):
    stopping = running_job(status=JobStatus.STOPPING)
    passes.insert(stopping)
    assert passes.take(report_of("idjob-1", 3)).stop == ("idjob-1",)
    passes.view.note_requested("stop", "idjob-1")
    assert passes.take(report_of("idjob-1", 3)).stop == ()
    assert passes.take(report_of("idjob-1", 3, stopping=True)).stop == ()


def test_a_job_that_is_to_stop_has_not_ended_where_the_agent_may_have_taken_it(passes):
    passes.insert(running_job())
    assert len(passes.take().put) == 1
    passes.view.note_unconfirmed("idjob-1")
    assert len(passes.take().put) == 1
    with passes.database.write() as connection:
        record = training_jobs.get_for_update(connection, "job")
        stop_training_job_row(connection, record, ARNS, BEGAN)
    passes.take(away=True)
    for _ in range(2):
        asks = passes.take()
        assert (asks.put, asks.stop) == ((), ("idjob-1",))
        assert passes.get().status is JobStatus.STOPPING
    passes.view.note_absent("idjob-1")
    passes.take()
    assert passes.get().status is JobStatus.STOPPED


def test_each_transition_is_an_event_and_the_end_is_one_hook(passes):
    job = running_job()
    passes.insert(job)
    with passes.database.write() as connection:
        tags.put(connection, job.arn, {"team": "a"})
    passes.take(report_of("idjob-1", 4, COMPLETED))
    passes.take(report_of("idjob-1", 4, COMPLETED))
    told = [one.detail["SecondaryStatus"] for one in passes.events]
    assert told == ["Downloading", "Training", "Uploading", "Completed"]
    assert len({one.event_id for one in passes.events}) == 4
    assert passes.events[-1].detail["Tags"] == {"team": "a"}
    assert [one.status for one in passes.ends] == [JobStatus.COMPLETED]


def test_an_end_that_cannot_be_told_of_has_not_happened_and_holds_no_other_up(passes, caplog):
    def fail(connection, record):
        if record.name == "bad":
            raise RuntimeError("no")

    passes.on_end = fail
    passes.insert(running_job("bad"), running_job("good"))
    reports = [report_of(f"id{name}-1", 4, COMPLETED) for name in ("bad", "good")]
    passes.take(*reports)
    assert passes.secondary("bad", "good") == ["Starting", "Completed"]
    assert "A training job could not go on." in caplog.text
    passes.on_end = lambda connection, record: None
    passes.take(*reports)
    assert passes.secondary("bad") == ["Completed"]


def test_what_waited_too_long_ends_without_the_agent(passes):
    passes.insert(waiting_job(**spot()), waiting_job("other"))
    passes.take(away=True, now=BEGAN + 200)
    assert passes.secondary("job", "other") == ["MaxWaitTimeExceeded", "Starting"]
    assert len(passes.ends) == 1


def test_when_a_spot_job_is_to_be_stopped_is_known_before(passes):
    passes.insert(waiting_job(**spot()))
    assert passes.take(now=BEGAN + 1).gives_up_at == BEGAN + 200


def test_what_is_overdue_and_stopping_or_uploading_is_not_due_again_and_again(passes):
    passes.insert(running_job("up", **spot()), running_job("down", **spot()))
    reports = [report_of("idup-1", 4), report_of("iddown-1", 3)]
    passes.take(*reports, now=BEGAN + 100)
    assert passes.take(*reports, now=BEGAN + 200).gives_up_at is None
    assert passes.secondary("up", "down") == ["Uploading", "Stopping"]


def test_metrics_are_cloudwatch_s_once(passes):
    metrics = tuple(JobMetric(name="loss", value=value, at=at) for value, at in ((2.0, 30.0),))
    passes.insert(running_job())
    passes.take(report_of("idjob-1", 3, metrics=metrics))
    passes.take(report_of("idjob-1", 4, metrics=metrics))
    nan = (*metrics, JobMetric(name="bad", value=math.nan, at=90.0))
    passes.take(report_of("idjob-1", 4, COMPLETED, metrics=nan))
    with passes.database.read() as connection:
        found = connection.execute(
            select(SERIES.c.namespace, SERIES.c.name, SERIES.c.dimensions, SAMPLES.c.minute)
            .add_columns(SAMPLES.c.count, SAMPLES.c.sum)
            .join(SAMPLES, SAMPLES.c.series_id == SERIES.c.series_id)
        ).all()
    ((namespace, name, dimensions, minute, count, total),) = found
    assert (namespace, name) == ("/aws/sagemaker/TrainingJobs", "loss")
    assert "TrainingJobName" in str(dimensions)
    assert (minute, count, total) == (0, 1, 2.0)
    assert passes.get().metrics == metrics


def test_an_interrupted_job_is_first_in_line(passes):
    passes.insert(running_job(**spot()), *waiting(3, first=1))
    passes.take(report_of("idjob-1", 3), now=BEGAN + 60)
    asks = passes.take(report_of("idjob-1", 3, JobOutcome.INTERRUPTED), now=BEGAN + 60)
    assert "idjob-2" in {spec.attempt_id for spec in asks.put}
    assert passes.secondary("j0001", "j0002", "j0003") == ["Starting"] * 3
    told = [one.detail["SecondaryStatus"] for one in passes.events if "job/job" in one.resources[0]]
    assert told[-2:] == ["Interrupted", "Starting"]


def test_nothing_is_written_without_the_lease(passes):
    passes.insert(waiting_job())
    with passes.database.write() as connection:
        leases.release(connection, "jobs", "one")
        leases.acquire(connection, "jobs", "two", BEGAN + 60, 5)
    with pytest.raises(LeaseLost):
        passes.take()
    assert passes.get().stage is JobStage.WAITING


def test_nothing_is_written_where_nothing_changed(passes):
    passes.insert(running_job(phases=3))
    passes.take(report_of("idjob-1", 3))
    begun = []
    event.listen(
        passes.database.engine,
        "before_cursor_execute",
        lambda conn, cursor, statement, *_: begun.append(statement),
    )
    passes.take(report_of("idjob-1", 3))
    assert begun[0] == "BEGIN"
    assert all(one.startswith(("BEGIN", "SELECT")) for one in begun)


def test_a_pass_does_not_read_more_where_more_wait_or_have_ended(passes):
    def rows_read():
        read = []
        kept = passes.database.engine

        def count(conn, cursor, statement, *_):
            read.append(statement)

        event.listen(kept, "before_cursor_execute", count)
        read_jobs = training_jobs._read

        def counted(*args, **kwargs):
            found = read_jobs(*args, **kwargs)
            read.extend(found)
            return found

        training_jobs._read = counted
        try:
            passes.take(now=BEGAN + 5000)
        finally:
            training_jobs._read = read_jobs
            event.remove(kept, "before_cursor_execute", count)
        return len(read)

    passes.insert(running_job("a"), running_job("b"), *waiting(3))
    rows_read()  # The first pass also counts them all.
    few = rows_read()
    passes.insert(*waiting(300, first=10))
    ended = {"stage": JobStage.ENDED, "status": JobStatus.COMPLETED}
    passes.insert(*(waiting_job(f"e{n}", job_id=f"e{n}", **ended) for n in range(300)))
    assert rows_read() == few


def test_many_that_are_due_are_ended_in_several_passes(passes, monkeypatch):
    monkeypatch.setattr("sagehen.services.sagemaker.training.reconciler.jobs.MAX_DUE", 2)
    late = {**spot(10), "status": JobStatus.STOPPING}
    passes.insert(*(waiting_job(f"j{n}", job_id=f"j{n}", **late) for n in range(3)))
    assert passes.take(away=True).again
    assert not passes.take(away=True).again
    assert {passes.get(f"j{n}").secondary for n in range(3)} == {SecondaryStatus.STOPPED}


def test_a_job_deleted_by_hand_leaves_nothing_at_the_agent(passes):
    passes.insert(running_job())
    passes.take(report_of("idjob-1", 3))
    with passes.database.write() as connection:
        training_jobs.delete(connection, "job")
    assert passes.take(report_of("idjob-1", 3)).delete == ("idjob-1",)
