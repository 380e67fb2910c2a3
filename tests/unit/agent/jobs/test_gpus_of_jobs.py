"""Jobs that wait for GPUs, and hand them back however they end."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from sagehen.agent.gpus.pool import GpuPool
from sagehen.agent.jobs.context import JobContext
from sagehen.base.home import Home
from sagehen.frame.gpus import GpuHolder
from sagehen.frame.job_specs import JobOutcome, JobPhase, StopRequest
from support.clock import SteppedClock
from support.jobs import JobsUnderTest, MakeSpec
from support.nvidia_smi import ListedGpus
from support.processes import children_with

G5 = "ml.g5.xlarge"
HOLDER = GpuHolder(endpoint="houses", variant="v", instance="i-1")


@pytest.fixture
def pool(around: JobContext) -> GpuPool:
    return GpuPool(around.settings, around.clock, ListedGpus(1))


@pytest.fixture
async def jobs(
    around: JobContext, pool: GpuPool, clock: SteppedClock
) -> AsyncIterator[JobsUnderTest]:
    under_test = JobsUnderTest(replace(around, gpus=pool))
    await under_test.jobs.start()
    yield under_test
    closing = asyncio.create_task(under_test.jobs.close())
    while not closing.done():
        clock.advance(1000)
        await asyncio.sleep(0.01)


def free(pool: GpuPool) -> list[float]:
    return [gpu.free for gpu in pool.report().gpus]


@pytest.mark.parametrize("script", ["echo $CUDA_VISIBLE_DEVICES", "exit 3"])
async def test_a_job_has_its_gpu_until_its_end(
    jobs: JobsUnderTest, make_spec: MakeSpec, pool: GpuPool, home: Home, script: str
) -> None:
    report = await jobs.run(make_spec(script, instance_type=G5))
    assert report.outcome is (JobOutcome.FAILED if "exit" in script else JobOutcome.COMPLETED)
    assert free(pool) == [1]
    if report.outcome is JobOutcome.COMPLETED:
        log = home.logs / "training-jobs" / "count" / "algo-1.log"
        assert log.read_text().split()[-1] == "0"


async def test_a_job_waits_and_can_be_stopped_meanwhile(
    jobs: JobsUnderTest, make_spec: MakeSpec, pool: GpuPool, clock: SteppedClock
) -> None:
    held = await pool.reserve(G5, (HOLDER,), wait_seconds=0)
    for attempt in ("j-1", "j-2"):
        jobs.jobs.put(make_spec(attempt_id=attempt, job_name=attempt, instance_type=G5))
        await clock.sleeper(jobs.around.settings.job_gpu_patience_seconds)
    jobs.jobs.stop("j-1", StopRequest())
    stopped = await jobs.ends("j-1")
    assert stopped.outcome is JobOutcome.STOPPED
    assert [change.phase for change in stopped.phases] == [JobPhase.STARTING]
    held.release()
    assert (await jobs.ends("j-2")).outcome is JobOutcome.COMPLETED
    assert free(pool) == [1]


async def test_a_job_that_waits_leaves_its_slot_to_others(
    around: JobContext, pool: GpuPool, make_spec: MakeSpec, clock: SteppedClock
) -> None:
    settings = around.settings.model_copy(update={"max_running_jobs": 1})
    jobs = JobsUnderTest(replace(around, gpus=pool, settings=settings))
    await jobs.jobs.start()
    held = await pool.reserve(G5, (HOLDER,), wait_seconds=0)
    jobs.jobs.put(make_spec(attempt_id="j-1", job_name="waits", instance_type=G5))
    assert await jobs.reports(lambda report: report.waits_for_gpus, "j-1")
    jobs.jobs.put(make_spec("sleep 1235", attempt_id="j-2", job_name="other"))
    await jobs.trains("j-2")
    # With its GPU, the first waits for a slot, as one job may run.
    held.release()
    waits = await jobs.reports(lambda report: not report.waits_for_gpus, "j-1")
    assert free(pool) == [0]
    await jobs.turn()
    assert [change.phase for change in waits.phases] == [JobPhase.STARTING]
    jobs.jobs.stop("j-2", StopRequest(grace_seconds=0))
    assert (await jobs.ends("j-1")).outcome is JobOutcome.COMPLETED
    closing = asyncio.create_task(jobs.jobs.close())
    while not closing.done():
        clock.advance(1000)
        await asyncio.sleep(0.01)


async def test_a_job_that_cannot_have_its_gpus_fails(
    jobs: JobsUnderTest, make_spec: MakeSpec, pool: GpuPool, clock: SteppedClock
) -> None:
    two_hosts = await jobs.run(make_spec(instance_type=G5, instance_count=2))
    assert two_hosts.outcome is JobOutcome.FAILED
    assert two_hosts.failure_reason == (
        "CapacityError: Unable to provision requested ML compute capacity. Please retry using a "
        "different ML instance type. (ml.g5.xlarge needs 1 GPU on each of 2 hosts, and this "
        "machine has 1 GPU)"
    )
    patience = jobs.around.settings.job_gpu_patience_seconds
    held = await pool.reserve(G5, (HOLDER,), wait_seconds=0)
    jobs.jobs.put(make_spec(attempt_id="j-2", instance_type=G5))
    await clock.sleeper(patience)
    clock.advance(patience)
    late = await jobs.ends("j-2")
    assert "held by: endpoint houses, instance i-1" in str(late.failure_reason)
    held.release()


async def test_a_killed_job_hands_its_gpu_back(
    jobs: JobsUnderTest, make_spec: MakeSpec, pool: GpuPool
) -> None:
    jobs.jobs.put(make_spec("sleep 1234", instance_type=G5))
    await jobs.trains()
    assert free(pool) == [0]
    jobs.jobs.delete("j-1")
    await jobs.is_gone()
    assert free(pool) == [1]
    assert children_with("1234") == []


async def test_hosts_with_fractions_share_a_gpu(
    jobs: JobsUnderTest, make_spec: MakeSpec, home: Home
) -> None:
    script = "echo $CUDA_VISIBLE_DEVICES $XLA_PYTHON_CLIENT_MEM_FRACTION"
    spec = make_spec(
        script,
        instance_type=G5,
        instance_count=2,
        environment={"SAGEHEN_GPU_FRACTION": "0.5"},
    )
    assert (await jobs.run(spec)).outcome is JobOutcome.COMPLETED
    for host in ("algo-1", "algo-2"):
        log = home.logs / "training-jobs" / "count" / f"{host}.log"
        assert log.read_text().split()[-2:] == ["0", "0.5"]
