"""The next step of a transform job: facts in, steps out."""

import msgspec
import pytest

from sagehen.frame.container_specs import InstanceOwner, InstanceState
from sagehen.services.sagemaker.hosting.reconciler.plan import Retry
from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.transform.job_records import TransformProgress
from sagehen.services.sagemaker.transform.reconciler.plan import (
    MAX_INSTANCE_RETRIES,
    MAX_RUNNER_DEATHS,
    STOP_SECONDS,
    JobFacts,
    RunnerAction,
    RunnerFacts,
    instance_ids,
    plan_job,
)
from sagehen.services.sagemaker.transform.runner_messages import FailedObject, RunnerEnded
from sagehen.services.sagemaker.transform.status import request_stop
from support.transform_jobs import BEGAN, active_transform, done, reports_of

NOW = BEGAN + 60
SERVES, FAILED = InstanceState.IN_SERVICE, InstanceState.FAILED
STARTS, STOPS = InstanceState.STARTING, InstanceState.STOPPING
STARTED = {"started_at": BEGAN + 1}


def plan(job, *states, away=False, runner=None, retries=None, progress=None, reason=None):
    return plan_job(
        JobFacts(
            job=job,
            progress=progress or TransformProgress(job_id=job.job_id),
            reports=None if away else reports_of(job, *states, reason=reason),
            runner=runner or RunnerFacts(),
            retries=retries or {},
            now=NOW,
        )
    )


def running(*messages, deaths=0):
    return RunnerFacts(is_running=True, messages=messages, deaths=deaths)


def test_all_instances_are_asked_for_and_a_runner_waits_for_them():
    job = active_transform(instances=2)
    step = plan(job)
    assert [spec.instance_id for spec in step.start] == instance_ids(job)
    assert {spec.owner for spec in step.start} == {InstanceOwner.TRANSFORM_JOB}
    assert step.start[0].containers == job.containers
    assert (step.runner, step.job) == (RunnerAction.PREPARE, job)
    assert plan(job, STARTS, STARTS).runner is RunnerAction.PREPARE
    assert plan(job, away=True).runner is RunnerAction.KEEP


def test_ids_are_the_job_s_own_and_the_same_each_time():
    first, second = active_transform("a", 2), active_transform("b", 2)
    assert instance_ids(first) == instance_ids(first)
    assert len({*instance_ids(first), *instance_ids(second)}) == 4
    assert all(len(instance_id) == 19 for instance_id in instance_ids(first))


def test_the_first_in_service_starts_the_job():
    step = plan(active_transform(instances=2), SERVES, STARTS)
    assert step.job.started_at == NOW
    assert (step.runner, step.start) == (RunnerAction.RUN, ())
    assert [instance.address for instance in step.instances] == ["link:/0"]


def test_what_runs_is_left_alone_while_the_agent_is_away():
    job = active_transform(**STARTED)
    step = plan(job, away=True, runner=running())
    assert (step.runner, step.instances, step.start) == (RunnerAction.KEEP, None, ())
    assert step.job is job


def test_a_runner_keeps_running_without_any_instance():
    step = plan(active_transform(**STARTED), STARTS, runner=running())
    assert (step.runner, step.instances) == (RunnerAction.KEEP, ())


def test_lost_and_stopping_instances_are_asked_for_again():
    job = active_transform(instances=3, **STARTED)
    step = plan(job, SERVES, None, STOPS, runner=running())
    assert [spec.instance_id for spec in step.start] == instance_ids(job)[1:]


def test_an_instance_that_never_served_fails_the_job_with_its_reason():
    step = plan(active_transform(instances=2), STARTS, FAILED, reason="It does not load.")
    assert step.job.status is JobStatus.FAILED
    assert step.job.stage is JobStage.ENDED
    assert step.job.failure_reason == "It does not load."
    assert step.runner is RunnerAction.REMOVE


def test_later_a_failed_instance_is_retried_with_a_growing_wait():
    job = active_transform(instances=2, **STARTED)
    failed_id = instance_ids(job)[1]
    step = plan(job, SERVES, FAILED)
    assert step.start == ()
    first = step.retries[failed_id]
    assert step.wake_at == first.at > NOW
    due = msgspec.structs.replace(first, at=NOW)
    again = plan(job, SERVES, FAILED, retries={failed_id: due})
    assert [spec.instance_id for spec in again.start] == [failed_id]
    assert again.retries[failed_id].attempts == 1
    assert plan(job, SERVES, SERVES, retries={failed_id: due}).retries == {}


def test_a_job_whose_instances_all_fail_again_and_again_fails():
    job = active_transform(instances=2, **STARTED)
    hopeless = dict.fromkeys(instance_ids(job), Retry(attempts=MAX_INSTANCE_RETRIES, at=NOW + 1))
    ended = plan(job, FAILED, FAILED, retries=hopeless, reason="Out of memory.")
    assert ended.job.failure_reason == "Out of memory."
    assert plan(job, SERVES, FAILED, retries=hopeless).job.status is JobStatus.IN_PROGRESS
    assert plan(job, STARTS, FAILED, retries=hopeless).job.status is JobStatus.IN_PROGRESS
    (some, *_) = instance_ids(job)
    few = {**hopeless, some: Retry(attempts=1, at=NOW + 1)}
    assert plan(job, FAILED, FAILED, retries=few).job.status is JobStatus.IN_PROGRESS


def test_what_a_runner_tells_is_added_up_before_anything_else():
    step = plan(active_transform(**STARTED), SERVES, runner=running(done("a", through="a")))
    assert step.progress.done_through == "a"
    step = plan(active_transform(), FAILED, runner=running(done("a", through="a")))
    assert step.progress.done_through == "a"
    assert step.job.status is JobStatus.FAILED


@pytest.mark.parametrize(
    ("messages", "status", "reason"),
    [
        ([RunnerEnded()], JobStatus.COMPLETED, None),
        (
            [RunnerEnded(error="AlgorithmError")],
            JobStatus.FAILED,
            "AlgorithmError: See job logs for more information",
        ),
        (
            [RunnerEnded(error="ClientError", message="The manifest is broken.")],
            JobStatus.FAILED,
            "ClientError: The manifest is broken.",
        ),
        (
            [FailedObject(key="k", error="ClientError", message="400"), RunnerEnded()],
            JobStatus.FAILED,
            "ClientError: See job logs for more information",
        ),
        (
            [RunnerEnded(error="InternalServerError")],
            JobStatus.FAILED,
            "InternalServerError: We encountered an internal error.  Please try again.",
        ),
    ],
)
def test_the_runner_s_last_message_ends_the_job(messages, status, reason):
    step = plan(active_transform(**STARTED), away=True, runner=running(*messages))
    assert (step.job.status, step.job.failure_reason) == (status, reason)
    assert (step.job.ended_at, step.runner) == (NOW, RunnerAction.REMOVE)


def test_an_object_that_failed_with_an_earlier_runner_is_not_forgotten():
    progress = TransformProgress(job_id="idjob", failed_objects=1, failed_error="AlgorithmError")
    step = plan(active_transform(**STARTED), runner=running(RunnerEnded()), progress=progress)
    assert step.job.failure_reason == "AlgorithmError: See job logs for more information"


def test_runners_that_die_again_and_again_fail_the_job():
    job = active_transform(**STARTED)
    dying = RunnerFacts(deaths=MAX_RUNNER_DEATHS)
    assert plan(job, SERVES, runner=dying).runner is RunnerAction.RUN
    step = plan(job, SERVES, runner=RunnerFacts(deaths=MAX_RUNNER_DEATHS + 1))
    assert step.job.failure_reason.startswith("InternalServerError: The process that feeds the job")
    assert "transform_runner_memory_bytes" in step.job.failure_reason


class TestStopping:
    JOB = request_stop(active_transform(**STARTED), NOW - 1)

    def test_the_runner_is_asked_first(self):
        step = plan(self.JOB, SERVES, runner=running())
        assert (step.runner, step.job.status) == (RunnerAction.STOP, JobStatus.STOPPING)
        assert step.wake_at == NOW - 1 + STOP_SECONDS
        assert step.start == ()

    @pytest.mark.parametrize(
        "runner", [RunnerFacts(), RunnerFacts(deaths=1), running(RunnerEnded())]
    )
    def test_without_a_runner_the_job_is_stopped_at_once(self, runner):
        step = plan(self.JOB, away=True, runner=runner)
        assert (step.runner, step.job.status) == (RunnerAction.REMOVE, JobStatus.STOPPED)
        assert step.job.failure_reason is None

    @pytest.mark.parametrize("asked_at", [NOW - STOP_SECONDS, NOW + 999])
    def test_a_runner_that_does_not_end_is_killed_also_when_the_clock_was_set_back(self, asked_at):
        job = msgspec.structs.replace(self.JOB, stop_requested_at=asked_at)
        assert plan(job, SERVES, runner=running()).job.status is JobStatus.STOPPED

    def test_what_was_done_until_then_is_kept(self):
        step = plan(self.JOB, SERVES, runner=running(done("a", through="a")))
        assert step.progress.done_through == "a"


def test_no_time_goes_back_when_the_clock_does():
    job = active_transform(started_at=NOW + 5, modified_at=NOW + 5)
    step = plan(job, SERVES, runner=running(RunnerEnded()))
    assert step.job.ended_at == NOW + 5
