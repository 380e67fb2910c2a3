"""Attempts that really run, as processes of small shell scripts."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from sagehen.agent.jobs.surroundings import JobPace, JobSurroundings
from sagehen.agent.launchers.process import ProcessLauncher
from sagehen.credentials import make_credentials
from sagehen.domain.jobs import JobSpec
from sagehen.home import Home
from sagehen.objects import LocalObjectStore
from support.clock import SteppedClock
from support.jobs import LOOK_SECONDS, JobsUnderTest, MakeSpec
from support.state import settings_of


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock(now=1_700_000_000.0)


@pytest.fixture
def around(home: Home, objects: LocalObjectStore, clock: SteppedClock) -> Iterator[JobSurroundings]:
    make_credentials(home.credentials)
    home.address.write_text("http://127.0.0.1:9000")
    around = JobSurroundings(
        settings=settings_of(home.path, images={"counter": ["/bin/sh", "count.sh"]}),
        home=home,
        objects=objects,
        launcher=ProcessLauncher(),
        clock=clock,
        pace=JobPace(checkpoint_seconds=LOOK_SECONDS),
    )
    yield around
    around.threads.close()


@pytest.fixture
async def jobs(around: JobSurroundings) -> AsyncIterator[JobsUnderTest]:
    under_test = JobsUnderTest(around)
    await under_test.jobs.start()
    yield under_test
    closing = asyncio.create_task(under_test.jobs.close())
    while not closing.done():
        around.clock.advance(1000)  # type: ignore[attr-defined]
        await asyncio.sleep(0.01)


@pytest.fixture
def make_spec() -> MakeSpec:
    """Makes the spec of an attempt that runs a shell script; other members as given."""

    def make(script: str = "true", **members: Any) -> JobSpec:
        usual: dict[str, Any] = {
            "attempt_id": "j-1",
            "job_name": "count",
            "job_arn": "arn:aws:sagemaker:us-east-1:000000000000:training-job/count",
            "image": "anything",
            "instance_type": "ml.m5.large",
            "entrypoint": ("/bin/sh", "-c", script),
            "output_uri": "s3://bucket/out",
            "runtime_seconds": 3600,
        }
        return JobSpec(**usual | members)

    return make


@pytest.fixture
def base(home: Home) -> Path:
    """The first host's /opt/ml."""
    return home.jobs / "j-1" / "algo-1" / "ml"
