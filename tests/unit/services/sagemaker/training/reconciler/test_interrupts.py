"""Interrupting jobs: by name, or the newest spot jobs first."""

import pytest

from sagehen.base.errors import Conflict, NotFound, Unavailable
from sagehen.frame.job_specs import JobOutcome, StopRequest
from sagehen.services.sagemaker.job_tables import JobStatus
from sagehen.services.sagemaker.training.reconciler.interrupts import Interrupts
from sagehen.services.sagemaker.training.records import (
    SecondaryStatus,
    TrainingJobRecord,
    Transition,
)
from support.fixtures.reconcile_jobs import Passes
from support.training_jobs import BEGAN, running_job, spot, waiting_job


class StoppingAgent:
    """Has all attempts but those in `without`."""

    def __init__(self) -> None:
        self.stopped: list[str] = []
        self.without: set[str] = set()
        self.is_away = False

    async def stop_job(self, attempt_id: str, request: StopRequest | None = None) -> None:
        if self.is_away:
            raise Unavailable("The agent is away.")
        if attempt_id in self.without:
            raise NotFound(f"There is no attempt {attempt_id}.")
        assert request is not None
        assert request.outcome is JobOutcome.INTERRUPTED
        self.stopped.append(attempt_id)


@pytest.fixture
def agent() -> StoppingAgent:
    return StoppingAgent()


@pytest.fixture
def interrupts(passes: Passes, agent: StoppingAgent) -> Interrupts:
    return Interrupts(passes.database, agent)  # type: ignore[arg-type]


def spot_job(name: str, begun_at: float) -> TrainingJobRecord:
    transition = Transition(status=SecondaryStatus.STARTING, started_at=begun_at)
    return running_job(name, transitions=(transition,), **spot())


async def test_a_job_is_interrupted_by_its_name_in_any_case(
    passes: Passes, agent: StoppingAgent, interrupts: Interrupts
) -> None:
    job = running_job("Job")
    passes.insert(job)

    assert await interrupts.interrupt_job("jOB") == "Job"
    assert agent.stopped == [job.attempt_id]


async def test_a_job_that_is_not_there(interrupts: Interrupts) -> None:
    with pytest.raises(NotFound, match="no training job gone"):
        await interrupts.interrupt_job("gone")


@pytest.mark.parametrize(
    "job",
    [
        waiting_job(),
        running_job(status=JobStatus.STOPPING),
        running_job(transitions=(Transition(status=SecondaryStatus.UPLOADING, started_at=BEGAN),)),
    ],
)
async def test_a_job_whose_code_does_not_run_is_a_conflict(
    passes: Passes, agent: StoppingAgent, interrupts: Interrupts, job: TrainingJobRecord
) -> None:
    passes.insert(job)

    with pytest.raises(Conflict):
        await interrupts.interrupt_job("job")
    assert agent.stopped == []


async def test_an_attempt_that_the_agent_does_not_have_is_a_conflict(
    passes: Passes, agent: StoppingAgent, interrupts: Interrupts
) -> None:
    job = running_job()
    passes.insert(job)
    agent.without = {job.attempt_id}

    with pytest.raises(Conflict):
        await interrupts.interrupt_job("job")


async def test_the_newest_spot_jobs_are_interrupted_first(
    passes: Passes, agent: StoppingAgent, interrupts: Interrupts
) -> None:
    jobs = [spot_job(name, BEGAN + at) for name, at in (("b", 2), ("c", 3), ("a", 1))]
    passes.insert(*jobs, running_job("on-demand"))

    assert await interrupts.interrupt_spot_jobs(2) == ["c", "b"]
    assert agent.stopped == [jobs[1].attempt_id, jobs[0].attempt_id]
    assert await interrupts.interrupt_spot_jobs(0) == []
    assert await interrupts.interrupt_spot_jobs(None) == ["c", "b", "a"]


async def test_an_agent_that_is_away_interrupts_nothing(
    passes: Passes, agent: StoppingAgent, interrupts: Interrupts
) -> None:
    passes.insert(spot_job("a", BEGAN))
    agent.is_away = True

    with pytest.raises(Unavailable):
        await interrupts.interrupt_spot_jobs(None)
