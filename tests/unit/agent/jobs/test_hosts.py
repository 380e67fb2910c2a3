"""How the container of a host has ended."""

import asyncio
from pathlib import Path

import pytest

from sagehen.agent.instances.limits import NO_LIMITS, Utilization
from sagehen.agent.jobs.host_folders import HostPaths
from sagehen.agent.jobs.hosts import JobHost
from sagehen.base.home import Home
from support.clock import HandClock
from support.jobs import MakeSpec


class FakeProcess:
    def __init__(self) -> None:
        self.ended_because: str | None = None

    def last_lines(self) -> list[str]:
        return ["ValueError: bad"]

    async def memory_bytes(self) -> int:
        return 2**20

    async def cpu_seconds(self) -> float:
        return 1.0


@pytest.fixture
async def make_host(home: Home, make_spec: MakeSpec, tmp_path: Path):
    def make(status: int | None) -> JobHost:
        exited = asyncio.get_running_loop().create_future()
        if status is not None:
            exited.set_result(status)
        used = Utilization(NO_LIMITS, tmp_path, HandClock())
        paths = HostPaths(home, make_spec(), 1)
        return JobHost(paths, FakeProcess(), exited, used)  # type: ignore[arg-type]

    return make


@pytest.mark.parametrize(
    ("status", "signal"), [(None, None), (0, None), (1, None), (-9, 9), (143, 15), (137, 9)]
)
async def test_the_signal_that_ended_it_or_a_child(make_host, status, signal) -> None:
    host = make_host(status)
    assert (host.status, host.killed_by) == (status, signal)


async def test_a_limit_is_the_reason_before_its_log(make_host) -> None:
    host = make_host(-9)
    assert host.describe_failure() == "AlgorithmError: ValueError: bad, exit code: 137"
    host.process.ended_because = "it passed the memory of its instance"
    reason = host.describe_failure()
    assert reason.startswith("ClientError: Please use an instance type with more memory")
    assert reason.endswith("(it passed the memory of its instance), exit code: 137")


async def test_its_samples_have_the_names_of_job_and_host(make_host) -> None:
    samples = await make_host(None).samples()
    assert {(sample.job, sample.host) for sample in samples} == {("count", "algo-1")}
    names = {sample.name for sample in samples}
    assert names == {"CPUUtilization", "MemoryUtilization", "DiskUtilization"}
