"""The jobs behind the agent's socket, asked by its client: as control sees them."""

from collections.abc import AsyncIterator, Callable

import pytest

from sagehen.agent.agent import Agent
from sagehen.agent.app import create_app
from sagehen.agent.client import AgentClient
from sagehen.base.clock import SYSTEM
from sagehen.base.credentials import make_credentials
from sagehen.base.errors import Invalid, NotFound, Unavailable
from sagehen.base.home import Home
from sagehen.base.settings import Settings
from sagehen.frame.job_specs import JobOutcome, JobReport, JobSpec, StopRequest
from sagehen.services.s3.storage import ObjectStore
from support.agents import served

MakeSpec = Callable[..., JobSpec]


@pytest.fixture
async def client(
    settings: Settings, home: Home, objects: ObjectStore
) -> AsyncIterator[AgentClient]:
    make_credentials(home.credentials)
    agent = Agent(settings, home, objects, SYSTEM)
    await agent.start()
    async with served(create_app(agent), home.agent_socket):
        yield AgentClient(home.agent_socket)
    await agent.stop()


@pytest.fixture
def make_job() -> MakeSpec:
    def make(script: str = "true", attempt_id: str = "j-1", **members: object) -> JobSpec:
        return JobSpec(
            attempt_id=attempt_id,
            job_name="count",
            job_arn="arn",
            image="anything",
            instance_type="ml.m5.large",
            entrypoint=("/bin/sh", "-c", script),
            output_uri="s3://bucket/out",
            runtime_seconds=60,
            **members,  # type: ignore[arg-type]
        )

    return make


async def wait_for(
    client: AgentClient, outcome: JobOutcome | None, attempt: str
) -> JobReport | None:
    """The attempt's report once it has that outcome; None means once it is gone."""
    listed = await client.jobs()
    while True:
        found = {report.attempt_id: report for report in listed.jobs}.get(attempt)
        if (found.outcome if found else None) == outcome:
            return found
        listed = await client.jobs(since=listed.version, wait_seconds=30)


async def test_an_attempt_comes_and_goes(client: AgentClient, make_job: MakeSpec) -> None:
    await client.put_job(make_job())
    await client.put_job(make_job())
    report = await wait_for(client, JobOutcome.COMPLETED, "j-1")
    assert report is not None
    assert len(report.phases) == 4
    await client.delete_job("j-1")
    await client.delete_job("j-1")
    await wait_for(client, None, "j-1")


async def test_an_attempt_is_told_to_end(client: AgentClient, make_job: MakeSpec) -> None:
    for attempt in ("j-1", "j-2"):
        await client.put_job(make_job("sleep 1000", attempt))
    await client.stop_job("j-1", StopRequest(grace_seconds=0))
    await wait_for(client, JobOutcome.STOPPED, "j-1")
    await client.stop_job("j-2", StopRequest(outcome=JobOutcome.INTERRUPTED, grace_seconds=0))
    await wait_for(client, JobOutcome.INTERRUPTED, "j-2")
    with pytest.raises(Invalid, match="cannot be stopped with the outcome Completed"):
        await client.stop_job("j-2", StopRequest(outcome=JobOutcome.COMPLETED))


async def test_what_is_refused_says_why(
    client: AgentClient, make_job: MakeSpec, home: Home
) -> None:
    with pytest.raises(NotFound, match="no attempt j-9"):
        await client.stop_job("j-9")
    with pytest.raises(Invalid, match="1 to 100 hosts"):
        await client.put_job(make_job(instance_count=0))
    with pytest.raises(Unavailable):
        await AgentClient(home.run / "nobody.sock").jobs()


async def test_running_hosts_have_numbers(client: AgentClient, make_job: MakeSpec) -> None:
    assert await client.job_samples() == []
    await client.put_job(make_job("sleep 1000", instance_count=2))
    listed = await client.jobs()
    while len(listed.jobs[0].phases) < 3:
        listed = await client.jobs(since=listed.version, wait_seconds=30)
    told = {(one.job, one.host, one.name): one.value for one in await client.job_samples()}
    names = ("CPUUtilization", "MemoryUtilization", "DiskUtilization")
    assert told.keys() == {("count", host, name) for host in ("algo-1", "algo-2") for name in names}
    assert told["count", "algo-1", "MemoryUtilization"] > 0
