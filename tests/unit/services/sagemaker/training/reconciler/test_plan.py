"""Every step of a training job's status machine."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.frame.job_specs import JobMetric, JobOutcome, JobPhase, JobReport, PhaseChange
from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.training.reconciler.plan import (
    AttemptFacts,
    AttemptPresence,
    admit,
    give_up,
    plan_job,
)
from sagehen.services.sagemaker.training.records import SecondaryStatus, TrainingJobRecord
from sagehen.services.sagemaker.training.status import JobUpdate
from support.training_jobs import BEGAN, report_of, running_job, spot, waiting_job

RETRY = {"RetryStrategy": {"MaximumRetryAttempts": 1}}
ABSENT, LOST, UNKNOWN = (
    AttemptFacts(presence=one)
    for one in (AttemptPresence.ABSENT, AttemptPresence.LOST, AttemptPresence.UNKNOWN)
)
NOW = BEGAN + 60


def there(report: JobReport) -> AttemptFacts:
    return AttemptFacts(presence=AttemptPresence.PRESENT, report=report)


def follow(record: TrainingJobRecord, phases: int, outcome=None, now=NOW, **members):
    report = report_of(record.attempt_id, phases, outcome, **members)
    return plan_job(record, there(report), now, 3)


def statuses(record: TrainingJobRecord) -> list[str]:
    return [one.status.value for one in record.transitions]


def stopping(record: TrainingJobRecord, at: float = NOW) -> TrainingJobRecord:
    course = JobUpdate(record)
    course.stop(at, SecondaryStatus.STOPPED)
    return course.record


WHOLE = ["Starting", "Downloading", "Training", "Uploading", "Completed"]


def test_a_job_that_completes_has_each_phase_at_its_own_time():
    course = follow(running_job(), 4, JobOutcome.COMPLETED, artifacts=("model.tar.gz",))
    after = course.record
    assert statuses(after) == WHOLE
    assert [one.started_at - BEGAN for one in after.transitions] == [0, 20, 30, 40, 50]
    assert [one.ended_at - BEGAN for one in after.transitions] == [20, 30, 40, 50, 50]
    assert [one.message for one in after.transitions[1:]] == [
        "Downloading input data",
        "Training image download completed. Training in progress.",
        "Uploading generated training model",
        "Training job completed",
    ]
    assert (after.status, after.stage) == (JobStatus.COMPLETED, JobStage.ENDED)
    assert (after.started_at, after.ended_at) == (BEGAN + 30, BEGAN + 50)
    assert (after.run_seconds, after.total_seconds) == (10, 10)
    assert after.artifacts == ("model.tar.gz",)


def test_one_event_for_each_transition_with_the_status_it_had_then():
    moves = follow(running_job(), 4, JobOutcome.COMPLETED).moves
    told = [(one.status.value, one.secondary.value) for one in moves]
    assert told == [
        *(("InProgress", one) for one in ("Downloading", "Training", "Uploading")),
        ("Completed", "Completed"),
    ]


def test_phases_are_taken_once_whether_they_are_seen_one_by_one_or_all_at_the_end():
    record = running_job()
    for phases in (1, 2, 2, 3, 4):
        record = follow(record, phases).record
    assert follow(record, 4, JobOutcome.COMPLETED).record == msgspec.structs.replace(
        follow(running_job(), 4, JobOutcome.COMPLETED).record
    )


@pytest.mark.parametrize("facts", [ABSENT, UNKNOWN])
def test_a_job_whose_attempt_is_not_known_stays(facts):
    record = running_job()
    assert plan_job(record, facts, NOW, 3).record is record


def test_that_an_attempt_is_there_is_not_worth_a_write():
    record = running_job()
    assert follow(record, 1).record is record


def test_failed():
    after = follow(running_job(), 4, JobOutcome.FAILED, failure_reason="A" * 2000).record
    assert (after.status, after.secondary) == (JobStatus.FAILED, SecondaryStatus.FAILED)
    assert after.failure_reason == "A" * 1024
    assert after.transitions[-1].message == after.failure_reason
    assert (after.retries, after.attempt) == (0, 1)


def test_failed_before_its_code_ran():
    after = follow(running_job(), 2, JobOutcome.FAILED, failure_reason="ClientError: no").record
    assert statuses(after) == ["Starting", "Downloading", "Failed"]
    assert (after.started_at, after.ended_at) == (None, BEGAN + 30)


def test_stopped():
    record = stopping(follow(running_job(), 3).record, BEGAN + 35)
    assert (record.status, record.secondary) == (JobStatus.STOPPING, SecondaryStatus.STOPPING)
    after = follow(record, 4, JobOutcome.STOPPED).record
    assert statuses(after) == [*WHOLE[:3], "Stopping", "Uploading", "Stopped"]
    assert after.status is JobStatus.STOPPED
    assert after.transitions[-1].message == "Training job stopped"
    assert after.failure_reason is None


def test_stopped_before_anything_was_seen_of_it():
    after = follow(stopping(running_job(), BEGAN + 5), 3, JobOutcome.STOPPED).record
    # What was missed before the stop is not told after it.
    assert statuses(after) == ["Starting", "Stopping", "Stopped"]
    assert after.started_at == BEGAN + 30


def test_a_stop_before_the_agent_has_it_ends_it():
    after = plan_job(stopping(running_job()), ABSENT, NOW, 3).record
    assert statuses(after) == ["Starting", "Stopping", "Stopped"]


def test_a_stop_while_the_agent_is_away_waits_for_it():
    record = stopping(running_job())
    assert plan_job(record, UNKNOWN, NOW, 3).record is record


@pytest.mark.parametrize(
    ("outcome", "end"),
    [
        (JobOutcome.COMPLETED, SecondaryStatus.COMPLETED),
        (JobOutcome.FAILED, SecondaryStatus.FAILED),
        (JobOutcome.MAX_RUNTIME, SecondaryStatus.MAX_RUNTIME_EXCEEDED),
        (JobOutcome.INTERRUPTED, SecondaryStatus.STOPPED),
        (JobOutcome.LOST, SecondaryStatus.FAILED),
    ],
)
def test_what_ends_while_it_is_to_stop_is_not_begun_again(outcome, end):
    record = stopping(follow(running_job(**RETRY), 3).record)
    after = follow(record, 3, outcome, failure_reason="why").record
    assert (after.secondary, after.stage) == (end, JobStage.ENDED)


def test_lost_while_it_is_to_stop():
    record = stopping(follow(running_job(), 3).record)
    assert plan_job(record, LOST, NOW, 3).record.secondary is SecondaryStatus.STOPPED


def test_max_runtime_is_a_stop():
    after = follow(running_job(), 4, JobOutcome.MAX_RUNTIME, step=100).record
    assert statuses(after) == [*WHOLE[:3], "Stopping", "Uploading", "MaxRuntimeExceeded"]
    assert after.status is JobStatus.STOPPED
    said = "Training job runtime exceeded MaxRuntimeInSeconds provided"
    assert after.transitions[-1].message == said
    assert after.failure_reason is None


def test_max_runtime_is_seen_when_it_begins_to_upload():
    after = follow(running_job(), 4, step=100).record
    assert statuses(after)[-2:] == ["Stopping", "Uploading"]
    assert after.status is JobStatus.STOPPING


def test_a_spot_job_that_is_interrupted_goes_on_with_another_attempt():
    record = follow(running_job(**spot()), 3).record
    between = follow(record, 3, JobOutcome.INTERRUPTED, running_seconds=7.0).record
    assert statuses(between) == [*WHOLE[:3], "Interrupted"]
    assert (between.stage, between.status) == (JobStage.WAITING, JobStatus.IN_PROGRESS)
    again = admit(between, BEGAN + 60).record
    assert (again.attempt, again.stage, again.gives_up_at) == (2, JobStage.ACTIVE, BEGAN + 200)
    assert again.attempt_id != record.attempt_id
    after = follow(again, 4, JobOutcome.COMPLETED, began=BEGAN + 60).record
    assert statuses(after) == [*WHOLE[:3], "Interrupted", *WHOLE]
    assert after.run_seconds == 17
    # Interrupted at 40, begun again at 60, downloading at 80, its code runs at 90.
    assert after.total_seconds == 17 + 20 + 20 + 10


def test_a_job_that_is_no_spot_job_is_restarted():
    after = follow(running_job(), 3, JobOutcome.INTERRUPTED).record
    assert (after.secondary, after.stage) == (SecondaryStatus.RESTARTING, JobStage.WAITING)
    assert after.retries == 0


def test_a_spot_job_whose_agent_was_lost_is_interrupted_however_often():
    record = follow(running_job(**spot(), retries=30), 3).record
    after = plan_job(record, LOST, BEGAN + 45, 0).record
    assert (after.secondary, after.stage) == (SecondaryStatus.INTERRUPTED, JobStage.WAITING)
    assert after.run_seconds == 15


def test_another_is_restarted_so_often():
    record = follow(running_job(retries=2), 3).record
    after = plan_job(record, LOST, NOW, 3).record
    assert (after.secondary, after.retries) == (SecondaryStatus.RESTARTING, 3)
    again = follow(admit(after, NOW).record, 3, began=NOW).record
    end = plan_job(again, LOST, NOW + 60, 3).record
    assert end.status is JobStatus.FAILED
    assert end.failure_reason.startswith("InternalServerError: ")


def test_as_often_as_its_retry_strategy_says():
    record = follow(running_job(**RETRY), 3).record
    once = plan_job(record, LOST, NOW, 3).record
    assert (once.stage, once.retries) == (JobStage.WAITING, 1)
    again = follow(admit(once, NOW).record, 3, began=NOW).record
    assert plan_job(again, LOST, NOW + 60, 3).record.status is JobStatus.FAILED


def test_our_own_faults_are_retried_only_by_a_retry_strategy():
    said = {"failure_reason": "InternalServerError: the disk"}
    plain = follow(running_job(), 3, JobOutcome.LOST, **said).record
    assert (plain.status, plain.failure_reason) == (JobStatus.FAILED, said["failure_reason"])
    record = follow(running_job(**RETRY), 3, JobOutcome.LOST, **said).record
    assert (record.secondary, record.retries) == (SecondaryStatus.RESTARTING, 1)
    again = admit(record, NOW).record
    assert statuses(again)[-2:] == ["Restarting", "Starting"]
    end = follow(again, 3, JobOutcome.LOST, began=NOW, **said).record
    assert end.status is JobStatus.FAILED


def test_max_runtime_is_of_all_attempts():
    record = running_job(**spot())
    after = follow(record, 3, JobOutcome.INTERRUPTED, running_seconds=100.0).record
    assert statuses(after)[-3:] == ["Interrupted", "Stopping", "MaxRuntimeExceeded"]
    assert after.stage is JobStage.ENDED


def test_an_attempt_lost_for_long_has_not_run_longer_than_it_may():
    record = follow(running_job(**spot(10_000)), 3).record
    after = plan_job(record, LOST, BEGAN + 5000, 3).record
    assert after.run_seconds == 100
    assert after.secondary is SecondaryStatus.MAX_RUNTIME_EXCEEDED


def test_an_attempt_lost_before_its_code_ran_has_not_run():
    before = follow(running_job(**spot()), 3, JobOutcome.INTERRUPTED, running_seconds=7.0).record
    again = follow(admit(before, NOW).record, 2, began=NOW).record
    assert plan_job(again, LOST, NOW + 60, 3).record.run_seconds == 7


def test_max_wait_stops_what_runs():
    record = follow(running_job(**spot(60)), 3).record
    told = plan_job(record, there(report_of(record.attempt_id, 3)), BEGAN + 60, 3).record
    assert (told.secondary, told.status) == (SecondaryStatus.STOPPING, JobStatus.STOPPING)
    after = follow(told, 4, JobOutcome.STOPPED).record
    assert statuses(after)[-3:] == ["Stopping", "Uploading", "MaxWaitTimeExceeded"]
    assert after.status is JobStatus.STOPPED


def test_max_wait_lets_results_through_that_are_on_their_way():
    record = follow(running_job(**spot(60)), 4).record
    report = report_of(record.attempt_id, 4)
    assert plan_job(record, there(report), BEGAN + 90, 3).record is record


def test_max_wait_of_one_interrupted_and_not_begun_again():
    record = follow(running_job(**spot()), 3, JobOutcome.INTERRUPTED).record
    after = give_up(record, BEGAN + 200).record
    assert statuses(after)[-3:] == ["Interrupted", "Stopping", "MaxWaitTimeExceeded"]
    assert after.status is JobStatus.STOPPED


def test_max_wait_of_one_never_launched():
    after = give_up(waiting_job(**spot()), BEGAN + 200).record
    assert statuses(after) == ["Starting", "Stopping", "MaxWaitTimeExceeded"]
    assert (after.stage, after.started_at) == (JobStage.ENDED, None)


def test_max_pending_time():
    condition = {"MaxRuntimeInSeconds": 9, "MaxPendingTimeInSeconds": 7200}
    record = waiting_job(StoppingCondition=condition, gives_up_at=BEGAN + 7200)
    after = give_up(record, BEGAN + 7200).record
    assert (after.status, after.secondary) == (JobStatus.STOPPED, SecondaryStatus.STOPPED)
    assert "MaxPendingTimeInSeconds" in after.transitions[1].message


def test_the_time_to_be_pending_ends_with_the_start():
    record = waiting_job(gives_up_at=BEGAN + 7200)
    assert admit(record, NOW).record.gives_up_at is None


def test_told_to_stop_while_it_waits():
    after = give_up(stopping(waiting_job(**spot())), NOW).record
    assert statuses(after) == ["Starting", "Stopping", "Stopped"]


def test_the_start_is_told_once():
    course = admit(waiting_job(), NOW)
    assert (course.moves, statuses(course.record)) == ([], ["Starting"])
    assert course.record.transitions[0].message == "Preparing the instances for training"


def test_a_clock_that_was_set_back_makes_no_time_run_backwards():
    after = follow(running_job(), 4, JobOutcome.COMPLETED, began=BEGAN - 5000).record
    assert after.created_at <= after.started_at <= after.ended_at <= after.modified_at
    for one in after.transitions:
        assert one.started_at <= one.ended_at
    assert after.run_seconds == 10


def test_metrics_are_written_now_and_then_and_with_every_step():
    def metrics(at):
        return (JobMetric(name="loss", value=1.0, at=at),)

    record = follow(running_job(), 3, metrics=metrics(1.0)).record
    assert record.metrics == metrics(1.0)
    assert follow(record, 3, metrics=metrics(10.9)).record is record
    assert follow(record, 3, metrics=metrics(11.0)).record.metrics == metrics(11.0)
    assert follow(record, 4, metrics=metrics(2.0)).record.metrics == metrics(2.0)


ENDS = {
    SecondaryStatus.COMPLETED: JobStatus.COMPLETED,
    SecondaryStatus.FAILED: JobStatus.FAILED,
    SecondaryStatus.STOPPED: JobStatus.STOPPED,
    SecondaryStatus.MAX_RUNTIME_EXCEEDED: JobStatus.STOPPED,
    SecondaryStatus.MAX_WAIT_TIME_EXCEEDED: JobStatus.STOPPED,
}
SIGHTS = st.sampled_from([ABSENT, LOST, UNKNOWN])
PHASE_LISTS = st.lists(
    st.builds(PhaseChange, phase=st.sampled_from(JobPhase), at=st.floats(0, 5000)), max_size=6
)
REPORTS = st.builds(
    lambda phases, outcome, ended, ran: JobReport(
        attempt_id="any",
        phases=tuple(phases),
        outcome=outcome,
        ended_at=ended if outcome else None,
        running_seconds=ran if outcome else 0.0,
        failure_reason="why" if outcome else None,
    ),
    PHASE_LISTS,
    st.none() | st.sampled_from(JobOutcome),
    st.floats(0, 5000),
    st.floats(0, 200),
)
EVENTS = st.lists(
    st.tuples(SIGHTS | REPORTS.map(there), st.booleans(), st.floats(-2000, 4000)), max_size=12
)
JOBS = st.sampled_from([running_job(), running_job(**RETRY), running_job(**spot(500))])


@given(JOBS, EVENTS)
@settings(max_examples=200, deadline=None)
def test_whatever_is_told_in_whatever_order_it_ends_once(record, events):
    ends = 0
    for facts, told_to_stop, wait in events:
        now = BEGAN + wait
        if told_to_stop and record.status is JobStatus.IN_PROGRESS:
            record = stopping(record, now)
        if record.stage is JobStage.WAITING:
            over = record.gives_up_at is not None and record.gives_up_at <= now
            over = over or record.status is JobStatus.STOPPING
            course = give_up(record, now) if over else admit(record, now)
        elif record.stage is JobStage.ACTIVE:
            course = plan_job(record, facts, now, 2)
        else:
            break
        before, record = record, course.record
        ends += record.stage is JobStage.ENDED
        assert len(record.transitions) == len(before.transitions) + len(course.moves)
        check(record)
    assert ends == (record.stage is JobStage.ENDED)


def check(record: TrainingJobRecord) -> None:
    """What holds of every job at any time."""
    final = record.stage is JobStage.ENDED
    assert record.status.is_final == final
    assert (record.secondary in ENDS) == final
    if final:
        assert ENDS[record.secondary] is record.status
        assert (record.failure_reason is not None) == (record.status is JobStatus.FAILED)
    times = [one.started_at for one in record.transitions]
    assert times == sorted(times)
    for one, behind in zip(record.transitions, record.transitions[1:], strict=False):
        assert one.ended_at == behind.started_at
        assert one.status is not behind.status
    if record.started_at is not None and record.ended_at is not None:
        assert record.created_at <= record.started_at <= record.ended_at
    assert (record.ended_at is not None) == final


def test_of_many_transitions_the_first_and_the_newest_are_kept():
    course = JobUpdate(waiting_job())
    for number in range(1, 500):
        course.move(SecondaryStatus.RESTARTING, BEGAN + number)
    kept = [one.started_at - BEGAN for one in course.record.transitions]
    assert kept == [0, *range(300, 500)]
