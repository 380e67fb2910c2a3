"""The images for which control wants fork servers."""

import asyncio
import sys

import pytest

from sagehen.agent.launchers.forkable import ForkKind
from sagehen.agent.warm_images import WarmImages
from sagehen.base.settings import Settings
from sagehen.containers.python_envs.install import RequirementsError

SKLEARN = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
OLDER = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:0.23-1-cpu-py3"
OWN = "mine"


class Environments:
    """Has one for OLDER; notes what is acquired."""

    def __init__(self) -> None:
        self.acquired: list[str] = []
        self.errors: list[Exception] = []

    async def acquire(self, image: str) -> None:
        if self.errors:
            raise self.errors.pop()
        self.acquired.append(image)

    def release(self, image: str) -> None:
        self.acquired.remove(image)

    def python(self, image: str) -> str:
        return "/older/bin/python" if image == OLDER else sys.executable


class Servers:
    def __init__(self) -> None:
        self.kept: list[list[ForkKind]] = []

    def keep(self, kinds: list[ForkKind]) -> None:
        self.kept.append(kinds)

    async def close(self) -> None:
        self.kept.append([])


@pytest.fixture
def environments() -> Environments:
    return Environments()


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def images(environments, servers) -> WarmImages:
    return WarmImages(Settings(images={OWN: ["serve"]}), environments, servers)


async def kept(servers: Servers, count: int) -> list[ForkKind]:
    """The last of `count` lists."""
    async with asyncio.timeout(60):
        while len(servers.kept) < count:  # noqa: ASYNC110
            await asyncio.sleep(0)
    return servers.kept[-1]


async def test_each_kind_of_container_has_its_python(images, environments, servers) -> None:
    images.request([SKLEARN, OLDER, OWN, "unknown"])
    found = await kept(servers, 1)
    assert found == [
        ForkKind(sys.executable, "sklearn"),
        ForkKind("/older/bin/python", "sklearn"),
    ]
    assert environments.acquired == [SKLEARN, OLDER]
    images.request([SKLEARN, OLDER, OWN, "unknown"])
    assert len(servers.kept) == 1, "nothing has changed"
    images.request([OLDER])
    assert await kept(servers, 2) == [ForkKind("/older/bin/python", "sklearn")]
    assert environments.acquired == [OLDER]
    await images.close()
    assert environments.acquired == []
    assert servers.kept[-1] == []


async def test_an_image_whose_libraries_cannot_be_installed_is_left_out(
    images, environments, servers, caplog
) -> None:
    environments.errors = [RequirementsError("no network")]
    images.request([OLDER, SKLEARN])
    assert await kept(servers, 1) == [ForkKind(sys.executable, "sklearn")]
    assert "no network" in caplog.text
