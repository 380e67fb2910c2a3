"""The loop that runs transform jobs, with an agent and runners in memory."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from sagehen.frame.arns import ArnMaker
from sagehen.frame.container_specs import InstanceOwner, InstanceState
from sagehen.services.s3.storage.local import LocalObjectStore
from sagehen.services.s3.storage.records import Attributes
from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.transform import store as transform_jobs
from sagehen.services.sagemaker.transform.data_log import JobDataLog
from sagehen.services.sagemaker.transform.reconciler.loop import TransformLoop
from sagehen.services.sagemaker.transform.reconciler.plan import (
    MAX_RUNNER_DEATHS,
    STOP_SECONDS,
    instance_ids,
)
from sagehen.services.sagemaker.transform.runner_messages import (
    Done,
    FailedObject,
    RunnerEnded,
    RunnerLog,
    RunnerSettings,
)
from sagehen.services.sagemaker.transform.status import request_stop
from sagehen.state import leases
from sagehen.state.leadership import Leadership
from support.state import settings_of
from support.transform_jobs import S3, MemoryRunner, done, waiting_transform


class Control:
    """One loop, and short words for what tests do with it."""

    def __init__(self, database, clock, agent, home, holder="one"):
        self.database, self.clock, self.agent, self.home = database, clock, agent, home
        agent.owner = InstanceOwner.TRANSFORM_JOB
        self.runners = []
        self.loop = TransformLoop(
            database,
            agent,
            clock,
            Leadership(database, clock, holder),
            ArnMaker("000000000000", "us-east-1"),
            settings_of(home.path),
            objects=LocalObjectStore(database, home.objects, clock),
            data_log=JobDataLog(home, 10_000, clock),
            runner_command=lambda: ["no-program"],
            s3=S3,
            make_process=self._make,
        )

    def _make(self, on_change):
        self.runners.append(MemoryRunner(on_change))
        return self.runners[-1]

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.loop.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def insert(self, *records):
        with self.database.write() as connection:
            for record in records:
                transform_jobs.insert(connection, record)

    def get(self, name="job"):
        with self.database.read() as connection:
            return transform_jobs.get(connection, name)

    def status(self):
        return self.get().status

    async def until(self, condition):
        """Let the loop work, without any time passing, until it is so."""
        async with asyncio.timeout(120):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def runner(self, number=1):
        """The last of so many runners, once it knows its job."""
        await self.until(lambda: len(self.runners) == number and self.runners[-1].spec)
        return self.runners[-1]


@pytest.fixture
def control(database, clock, agent, home):
    return Control(database, clock, agent, home)


async def test_a_job_from_its_creation_to_its_end(control):
    async with control.running():
        control.insert(waiting_transform(instances=2))
        runner = await control.runner()
        job = control.get()
        await control.until(lambda: len(runner.instances) == 2)
        assert {instance.instance_id for instance in runner.instances} == {*instance_ids(job)}
        assert (runner.spec.job_name, runner.spec.s3) == ("job", S3)
        runner.say(done("a", through="a"), RunnerEnded())
        await control.until(lambda: control.status() is JobStatus.COMPLETED)
        await control.until(lambda: not control.agent.states)
        assert runner.killed


async def test_a_runner_starts_with_the_instances_and_gets_its_job_when_they_serve(control):
    control.agent.starts_at_once = False
    async with control.running():
        control.insert(waiting_transform())
        await control.until(lambda: control.agent.states and control.runners)
        assert (control.runners[0].spec, control.runners[0].instances) == (None, ())
        control.clock.advance(5)
        control.agent.set(instance_ids(control.get())[0], InstanceState.IN_SERVICE)
        runner = await control.runner()
        await control.until(lambda: runner.instances)
        assert runner.spec.started_at == control.get().started_at == control.clock.now()


async def test_stop_does_not_wait_for_a_runner_without_a_job(control):
    control.agent.starts_at_once = False
    async with control.running():
        control.insert(waiting_transform())
        await control.until(lambda: control.runners)
        with control.database.write() as connection:
            job = transform_jobs.get_for_update(connection, "job")
            transform_jobs.update(connection, request_stop(job, control.clock.now()))
        await control.until(lambda: control.status() is JobStatus.STOPPED)
        await control.until(lambda: control.runners[0].killed)
        assert not control.runners[0].stopping


async def test_the_next_runner_knows_what_is_done(control):
    async with control.running():
        control.insert(waiting_transform())
        runner = await control.runner()
        settings = RunnerSettings(max_concurrent=1, max_payload_mb=6, batch_strategy="MultiRecord")
        runner.say(settings, done("a", "c", through="a", records=5))
        runner.die()
        await control.until(lambda: control.loop.measured()["TransformRunnerRestarts"] == {(): 1})
        assert len(control.runners) == 1
        control.clock.advance(1)
        spec = (await control.runner(2)).spec
        assert (spec.done_through, spec.done, spec.done_records) == ("a", ("c",), 5)
        assert spec.settings == settings


async def test_an_object_that_changes_no_count_is_done_too(control):
    async with control.running():
        control.insert(waiting_transform())
        runner = await control.runner()
        runner.say(Done(keys=("empty",), records=0, input_bytes=0))
        runner.die()
        await control.until(lambda: control.loop.measured()["TransformRunnerRestarts"] == {(): 1})
        control.clock.advance(1)
        assert (await control.runner(2)).spec.done == ("empty",)


async def test_runners_that_die_without_progress_fail_the_job(control):
    async with control.running():
        control.insert(waiting_transform())
        for number in range(1, MAX_RUNNER_DEATHS + 2):
            runner = await control.runner(number)
            runner.die()
            await control.until(
                lambda n=number: control.loop.measured()["TransformRunnerRestarts"] == {(): n}
            )
            control.clock.advance(11)
        await control.until(lambda: control.status() is JobStatus.FAILED)
        assert control.get().failure_reason.startswith("InternalServerError: ")
        await control.until(lambda: not control.agent.states)


async def test_stop_asks_the_runner_and_then_kills_it(control):
    async with control.running():
        control.insert(waiting_transform())
        runner = await control.runner()
        with control.database.write() as connection:
            job = transform_jobs.get_for_update(connection, "job")
            transform_jobs.update(connection, request_stop(job, control.clock.now()))
        await control.until(lambda: runner.stopping)
        assert control.status() is JobStatus.STOPPING
        control.clock.advance(STOP_SECONDS + 1)
        await control.until(lambda: control.status() is JobStatus.STOPPED)
        await control.until(lambda: runner.killed and not control.agent.states)


async def test_a_runner_that_ends_as_it_was_asked_to_has_not_died(control, caplog):
    async with control.running():
        control.insert(waiting_transform())
        runner = await control.runner()
        with control.database.write() as connection:
            job = transform_jobs.get_for_update(connection, "job")
            transform_jobs.update(connection, request_stop(job, control.clock.now()))
        await control.until(lambda: runner.stopping)
        runner.die()
        await control.until(lambda: control.status() is JobStatus.STOPPED)
        assert control.loop.measured()["TransformRunnerRestarts"] == {(): 0}
        assert "died" not in caplog.text


async def test_a_lost_instance_is_put_again_and_the_runner_hears_of_it(control):
    async with control.running():
        control.insert(waiting_transform(instances=2))
        runner = await control.runner()
        await control.until(lambda: len(runner.instances) == 2)
        control.agent.starts_at_once = False
        lost = instance_ids(control.get())[0]
        control.agent.states.pop(lost)
        control.agent.change()
        await control.until(lambda: control.agent.states.get(lost) is InstanceState.STARTING)
        await control.until(lambda: len(runner.instances) == 1)
        control.agent.set(lost, InstanceState.IN_SERVICE)
        await control.until(lambda: len(runner.instances) == 2)


async def test_an_agent_that_comes_back_without_instances_gets_them_again(control):
    async with control.running():
        control.insert(waiting_transform())
        runner = await control.runner()
        control.agent.leave()
        await control.until(lambda: control.loop._instances.reports is None)
        control.agent.away = False
        control.clock.advance(1)
        await control.until(lambda: control.agent.states)
        assert not runner.killed


async def test_what_the_agent_refuses_is_the_reason(control):
    control.agent.refuses = True
    async with control.running():
        control.insert(waiting_transform())
        await control.until(lambda: control.status() is JobStatus.FAILED)
        assert control.get().failure_reason == "No such thing as a refused instance."


async def test_a_control_without_the_lease_ends_what_it_runs(control):
    async with control.running():
        control.insert(waiting_transform())
        runner = await control.runner()
        with control.database.write() as connection:
            connection.execute(leases.LEASES.delete())
            leases.acquire(connection, "transform-jobs", "two", control.clock.now(), 1000)
        control.clock.advance(5)
        await control.until(lambda: runner.killed)
        control.clock.advance(5)
        await control.until(lambda: not control.agent.states)
        assert control.status() is JobStatus.IN_PROGRESS


JOB_ID = "0123456789abcdef" * 2


class Uploads:
    """Multipart uploads of this job and of others."""

    def __init__(self, control):
        objects = LocalObjectStore(control.database, control.home.objects, control.clock)
        objects.create_bucket("bucket")
        self._uploads = objects.uploads
        self.begin("of-nobody", None)
        self.begin("of-an-unknown-job", "f" * 32)

    def begin(self, key="out/large", owner=JOB_ID):
        self._uploads.create("bucket", key, Attributes(), owner=owner)

    @property
    def are_of_others(self):
        left = {upload.key for upload in self._uploads.list_page("bucket", "", ("", ""), 9)}
        return left == {"of-nobody", "of-an-unknown-job"}


@pytest.fixture
def uploads(control):
    return Uploads(control)


async def test_the_next_runner_starts_without_the_uploads_of_the_one_before(control, uploads):
    async with control.running():
        control.insert(waiting_transform(job_id=JOB_ID))
        runner = await control.runner()
        uploads.begin()  # nobody was told of it
        runner.die()
        await control.until(lambda: control.loop.measured()["TransformRunnerRestarts"] == {(): 1})
        control.clock.advance(1)
        await control.runner(2)
        assert uploads.are_of_others


@pytest.mark.parametrize("control_is_killed", [False, True])
async def test_uploads_of_a_runner_that_was_killed_end_with_the_job(
    control, uploads, control_is_killed
):
    if control_is_killed:
        ended = {"stage": JobStage.ENDED, "status": JobStatus.STOPPED}
        control.insert(waiting_transform(job_id=JOB_ID, **ended))
        uploads.begin()
    async with control.running():
        if not control_is_killed:
            control.insert(waiting_transform(job_id=JOB_ID))
            runner = await control.runner()
            await control.until(lambda: not control.loop._left_uploads.may_exist)
            uploads.begin()
            runner.say(RunnerEnded(error="ClientError"))
        await control.until(lambda: control.get().status.is_final and uploads.are_of_others)


async def test_the_next_runner_knows_which_objects_failed_if_the_job_captures_data(control):
    capture = {"DestinationS3Uri": "s3://bucket/capture"}
    async with control.running():
        control.insert(
            waiting_transform(DataCaptureConfig=capture), waiting_transform("no-capture")
        )
        await control.until(lambda: len(control.runners) == 2)
        for number, runner in enumerate(list(control.runners), 1):
            runner.say(FailedObject(key="many/a", error="ClientError", message="400"))
            runner.die()
            await control.until(
                lambda n=number: control.loop.measured()["TransformRunnerRestarts"] == {(): n}
            )
        control.clock.advance(1)
        await control.until(lambda: len(control.runners) == 4 and control.runners[-1].spec)
        failed = {runner.spec.job_name: runner.spec.failed for runner in control.runners[2:]}
        assert failed == {"job": ("many/a",), "no-capture": ()}
        for runner in control.runners[2:]:
            runner.say(RunnerEnded())
        await control.until(lambda: control.get().status.is_final)
        with control.database.read() as connection:
            assert transform_jobs.finished_objects(connection, "idjob") == {}


async def test_nothing_runs_on_when_the_loop_ends(control):
    async with control.running():
        control.insert(waiting_transform())
        runner = await control.runner()
    assert runner.killed


async def test_the_data_log_of_an_instance_and_of_the_job(control):
    async with control.running():
        control.insert(waiting_transform(instances=2))
        runner = await control.runner()
        first, second = instance_ids(control.get())
        runner.say(
            RunnerLog(instance_id=second, line="[sagemaker logs]: settings"),
            FailedObject(key="many/a", error="ClientError", message="ClientError: 400"),
        )
        folder = control.home.transform_log("job")
        await control.until(
            lambda: [file.read_text()[-1:] for file in folder.glob("*")] == ["\n", "\n"]
        )
        begun = "1970-01-01T00:16:40.000:[sagemaker logs]: "
        assert (folder / f"{second}.data-log.log").read_text() == begun + "settings\n"
        failed = begun + "bucket/many/a: ClientError: 400\n"
        assert (folder / f"{first}.data-log.log").read_text() == failed
