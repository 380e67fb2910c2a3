"""The loop that runs training jobs, with an agent in memory."""

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager

import pytest

from sagehen.base.errors import Conflict, NotFound, Unavailable
from sagehen.frame.arns import ArnMaker
from sagehen.frame.job_specs import JobOutcome
from sagehen.services.sagemaker.job_tables import JobStatus
from sagehen.services.sagemaker.training import store as training_jobs
from sagehen.services.sagemaker.training.operations import stop_training_job_row
from sagehen.services.sagemaker.training.reconciler.interrupts import Interrupts
from sagehen.services.sagemaker.training.reconciler.jobs import JobLimits
from sagehen.services.sagemaker.training.reconciler.loop import JobLoop
from sagehen.services.sagemaker.training.records import SecondaryStatus
from sagehen.state.leadership import Leadership
from support.training_jobs import JobAgent, report_of, spot, waiting_job

ARNS = ArnMaker("000000000000", "us-east-1")


class Control:
    """One loop, and short words for what tests do with it."""

    def __init__(self, database, clock, agent=None, holder="one") -> None:
        self.database, self.clock = database, clock
        self.agent = agent or JobAgent()
        self.ends = []
        self.loop = JobLoop(
            database,
            self.agent,
            clock,
            Leadership(database, clock, holder),
            ARNS,
            JobLimits(running=2, restarts=1, series=100),
            on_end=[lambda connection, record: self.ends.append(record.name)],
        )

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.loop.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def insert(self, *records) -> None:
        with self.database.write() as connection:
            for record in records:
                training_jobs.insert(connection, record)

    def get(self, name="job"):
        with self.database.read() as connection:
            return training_jobs.get(connection, name)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the loop work, without any time passing, until it is so."""
        async with asyncio.timeout(120):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def until_asked(self, verb: str, attempt_id: str) -> None:
        await self.until(lambda: (verb, attempt_id) in self.agent.asked)


@pytest.fixture
def control(database, clock) -> Control:
    return Control(database, clock)


async def test_from_its_row_to_its_end_without_any_time_passing(control):
    async with control.running():
        control.insert(waiting_job())
        await control.until_asked("put", "idjob-1")
        control.agent.show(report_of("idjob-1", 4, JobOutcome.COMPLETED))
        await control.until_asked("delete", "idjob-1")
    assert control.get().status is JobStatus.COMPLETED
    assert control.ends == ["job"]
    assert control.agent.asked_for({"put"}) == [("put", "idjob-1")]


async def test_the_end_is_on_disk_before_the_agent_may_forget_it(control):
    seen = []
    control.agent.before_answer = lambda verb, _: seen.append((verb, control.get().status))
    async with control.running():
        control.insert(waiting_job())
        await control.until_asked("put", "idjob-1")
        control.agent.show(report_of("idjob-1", 4, JobOutcome.COMPLETED))
        await control.until_asked("delete", "idjob-1")
    assert seen == [("put", JobStatus.IN_PROGRESS), ("delete", JobStatus.COMPLETED)]


async def test_one_that_runs_is_stopped(control):
    async with control.running():
        control.insert(waiting_job(**spot(10)))
        await control.until_asked("put", "idjob-1")
        control.agent.show(report_of("idjob-1", 3))
        await control.until(lambda: control.get().secondary is SecondaryStatus.TRAINING)
        control.clock.advance(10)
        control.loop.hint()  # It may have begun to rest just after, by a clock that stands still.
        await control.until_asked("Stopped", "idjob-1")
        control.agent.show(report_of("idjob-1", 4, JobOutcome.STOPPED))
        await control.until_asked("delete", "idjob-1")
    assert control.get().secondary is SecondaryStatus.MAX_WAIT_TIME_EXCEEDED
    assert len(control.agent.asked_for({"Stopped"})) == 1


async def test_of_a_put_without_an_answer_the_agent_is_asked_before_the_job_has_stopped(control):
    seen = []

    def no_answer(verb, _):
        seen.append((verb, control.get().status))
        if verb == "put":
            raise Unavailable("No answer.")

    control.agent.before_answer = no_answer
    async with control.running():
        control.insert(waiting_job())
        await control.until_asked("put", "idjob-1")
        with control.database.write() as connection:
            record = training_jobs.get_for_update(connection, "job")
            stop_training_job_row(connection, record, ARNS, control.clock.now())
        await control.until_asked("stop", "idjob-1")
        assert ("stop", JobStatus.STOPPING) in seen
        control.clock.advance(1)
        control.loop.hint()  # It may have begun to rest just after, by a clock that stands still.
        await control.until(lambda: control.get().status is JobStatus.STOPPED)
    assert control.ends == ["job"]


async def test_a_refusal_is_the_end(control):
    control.agent.refuses = "No."
    async with control.running():
        control.insert(waiting_job())
        await control.until(lambda: control.ends == ["job"])
    assert control.get().failure_reason == "ClientError: No."
    assert control.agent.asked == [("put", "idjob-1")]


async def test_an_agent_that_dies_and_comes_back_gets_the_job_again(control):
    async with control.running():
        control.insert(waiting_job())
        await control.until_asked("put", "idjob-1")
        control.agent.show(report_of("idjob-1", 3))
        await control.until(lambda: control.get().secondary is SecondaryStatus.TRAINING)
        control.agent.leave()
        await control.until(lambda: control.loop._watch.reports is None)
        control.agent.come_back()
        control.clock.advance(1)
        await control.until_asked("put", "idjob-2")
    assert control.get().retries == 1


async def test_what_an_agent_took_that_died_at_once_goes_to_the_next(control):
    """Between two looks at it: one of them would have found nobody there."""
    watch = control.loop._watch
    control.insert(waiting_job())
    watch.reports = {}
    await control.loop.turn()
    for seen in (None, {}):
        watch.reports = seen
        control.loop._on_reports()
    await control.loop.turn()
    assert control.agent.asked_for({"put"}) == [("put", "idjob-1")] * 2


async def test_an_end_that_came_while_control_was_away_is_told_by_the_next(
    control, database, clock
):
    async with control.running():
        control.insert(waiting_job())
        await control.until_asked("put", "idjob-1")
    control.agent.show(report_of("idjob-1", 4, JobOutcome.COMPLETED))
    other = Control(control.database, control.clock, control.agent)
    async with other.running():
        await other.until(lambda: other.ends == ["job"])
    assert other.get().status is JobStatus.COMPLETED


async def test_who_stands_by_stops_what_the_other_control_runs(control, database, clock):
    """Else an attempt that the other's agent was asked for anew would run, and upload, twice."""
    standby = Control(database, clock, holder="two")
    standby.agent.show(report_of("idgiven-up-1", 3), report_of("idjob-1", 3))
    async with control.running():
        control.insert(waiting_job(), waiting_job("given-up", attempt=1))
        await control.until_asked("put", "idjob-1")
        await control.until_asked("put", "idgiven-up-2")
        async with standby.running():
            await standby.until(lambda: not standby.agent.reports)
    assert sorted(standby.agent.asked) == [("delete", "idgiven-up-1"), ("delete", "idjob-1")]


async def test_a_standby_of_a_cluster_leaves_its_nodes_alone(control, database, clock):
    standby = Control(database, clock, holder="two")
    standby.loop.owns_agent = False
    standby.agent.show(report_of("idjob-1", 3))
    async with control.running():
        await control.until(lambda: control.loop._lease.is_ours)
        async with standby.running():
            await standby.until(lambda: standby.loop._watch.reports is not None)
            await standby.loop.turn()
    assert standby.agent.asked == []


async def test_what_prometheus_is_told(control):
    assert control.loop.measured() == {}  # Another control may run the jobs.
    async with control.running():
        control.insert(waiting_job())
        await control.until_asked("put", "idjob-1")
        control.agent.show(report_of("idjob-1", 3, JobOutcome.INTERRUPTED))
        await control.until_asked("put", "idjob-2")

        def counted() -> bool:
            control.clock.advance(1)
            return control.loop.measured()["RunningTrainingJobs"] == {(): 1}

        await control.until(counted)
        told = control.loop.measured()
    assert told == {
        "TrainingJobs": {("InProgress",): 1},
        "PendingTrainingJobs": {(): 0},
        "RunningTrainingJobs": {(): 1},
        "TrainingJobRestarts": {("Restarting",): 1},
    }


async def test_capacity_is_taken_back_by_name(control):
    interrupts = Interrupts(control.database, control.agent)
    with pytest.raises(NotFound):
        await interrupts.interrupt_job("job")
    async with control.running():
        control.insert(waiting_job("Job"))
        await control.until_asked("put", "idJob-1")
        control.agent.show(report_of("idJob-1", 3))
        assert await interrupts.interrupt_job("job") == "Job"
        assert control.agent.asked[-1] == ("Interrupted", "idJob-1")
        control.agent.show(report_of("idJob-1", 3, JobOutcome.INTERRUPTED))
        await control.until_asked("put", "idJob-2")
        control.agent.show(report_of("idJob-2", 4, JobOutcome.COMPLETED))
        await control.until(lambda: control.ends == ["Job"])
    with pytest.raises(Conflict, match="The training job Job is Completed: it is not run"):
        await interrupts.interrupt_job("job")


async def test_capacity_is_taken_back_of_the_spot_jobs_begun_last(control):
    interrupts = Interrupts(control.database, control.agent)
    async with control.running():
        control.insert(waiting_job("plain"))
        await control.until_asked("put", "idplain-1")
        control.insert(waiting_job("s", **spot(5000)))
        await control.until_asked("put", "ids-1")
        assert await interrupts.interrupt_spot_jobs(0) == []
        assert await interrupts.interrupt_spot_jobs(5) == ["s"]
    assert control.agent.asked_for({"Interrupted"}) == [("Interrupted", "ids-1")]
