"""A launcher whose engine is in memory."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sagehen.agent.instances.limits import Limits
from sagehen.agent.launchers.docker.launcher import DockerLauncher
from sagehen.agent.launchers.launcher import ImagePlan, LaunchPlan
from sagehen.agent.launchers.orphans import Orphans
from sagehen.base.home import Home
from support.docker.fake_engine import FakeEngine, serving_engine
from support.state import settings_of


@pytest.fixture
async def engine(short_path: Path) -> AsyncIterator[FakeEngine]:
    pytest.importorskip("docker", reason="the docker extra is not installed")
    async with serving_engine(short_path) as engine:
        engine.add_image("mine:1")
        yield engine


@pytest.fixture
async def make_launcher(
    home: Home, short_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Callable[..., DockerLauncher]]:
    made = []

    def make(**settings: Any) -> DockerLauncher:
        host = f"unix://{short_path}/engine.sock"
        chosen = settings_of(home.path, **{"docker_host": host, **settings})
        made.append(DockerLauncher(chosen, home, Orphans()))
        return made[-1]

    yield make
    if "engine" in request.fixturenames:
        for container in request.getfixturevalue("engine").containers.values():
            container.end(137)
        async with asyncio.timeout(60):
            while any(thread.name.startswith("log ") for thread in threading.enumerate()):  # noqa: ASYNC110
                await asyncio.sleep(0.002)
    for launcher in made:
        await launcher.close()


@pytest.fixture
def plan(home: Home) -> LaunchPlan:
    base = home.instances / "i-1" / "primary" / "ml"
    (base / "model").mkdir(parents=True)
    return LaunchPlan(
        instance_id="i-1",
        name="primary",
        command=("serve",),
        environment={"A": "b"},
        folder=base.parent,
        log=home.logs / "primary.log",
        log_bytes=2**20,
        limits=Limits(memory_bytes=2**28, processes=100, cpus=2),
        base=base,
        image=ImagePlan(uri="mine:1", hostname="primary", serves=True),
    )


@pytest.fixture
def change(plan: LaunchPlan) -> Callable[..., LaunchPlan]:
    """`change(**members)`: the plan with another image plan."""
    return lambda **members: replace(plan, image=replace(plan.image, **members))


@pytest.fixture
def until() -> Callable[..., Any]:
    async def until(holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(60):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.002)

    return until
