"""Environments are made once for all who want them, and kept as long as they are used."""

import asyncio
import sys
import threading

import pytest

from sagehen.agent.image_environments import ImageEnvironments
from sagehen.containers.python_envs.install import RequirementsError
from support.state import settings_of

IMAGE = "sagemaker-xgboost:1.7-1"


class Lease:
    python = "/env/bin/python"
    released = False

    def release(self):
        self.released = True


class Made:
    """Counts; waits until it is allowed to go on."""

    def __init__(self):
        self.specs = []
        self.leases = []
        self.started = threading.Event()
        self.go = threading.Event()
        self.error = None

    def acquire(self, spec):
        self.specs.append(spec)
        self.started.set()
        self.go.wait(60)
        if self.error:
            raise self.error
        self.leases.append(Lease())
        return self.leases[-1]


@pytest.fixture
def made():
    return Made()


@pytest.fixture
def make(home, made):
    def environments(mode="match", **settings):
        made_environments = ImageEnvironments(
            home, settings_of(home.path, image_versions=mode, **settings)
        )
        made_environments._environments = made
        return made_environments

    return environments


async def test_two_users_share_one_installation(make, made):
    environments = make()
    users = [asyncio.create_task(environments.acquire(IMAGE)) for _ in range(2)]
    made.go.set()
    await asyncio.gather(*users)
    (spec,) = made.specs
    assert spec.libraries == ("xgboost==1.7.4",)
    assert environments.python(IMAGE) == Lease.python
    environments.release(IMAGE)
    assert not made.leases[0].released
    environments.release(IMAGE)
    assert made.leases[0].released
    assert environments.python(IMAGE) == sys.executable


async def test_a_user_who_leaves_does_not_end_the_installation_of_another(make, made):
    environments = make()
    leaving, staying = (asyncio.create_task(environments.acquire(IMAGE)) for _ in range(2))
    await asyncio.to_thread(made.started.wait, 60)
    leaving.cancel()
    await asyncio.wait({leaving})
    made.go.set()
    await staying
    assert environments.python(IMAGE) == Lease.python


async def test_an_environment_that_nobody_waits_for_any_more_is_released(make, made):
    environments = make()
    user = asyncio.create_task(environments.acquire(IMAGE))
    await asyncio.to_thread(made.started.wait, 60)
    installing = environments._tasks[IMAGE]
    user.cancel()
    await asyncio.wait({user})
    made.go.set()
    await installing
    assert made.leases[0].released


async def test_a_failure_reaches_the_user_and_is_tried_again_next_time(make, made):
    environments = make()
    made.go.set()
    made.error = RequirementsError("no")
    with pytest.raises(RequirementsError):
        await environments.acquire(IMAGE)
    made.error = None
    await environments.acquire(IMAGE)
    assert environments.python(IMAGE) == Lease.python


@pytest.mark.parametrize(
    ("mode", "image", "settings"),
    [
        ("installed", IMAGE, {}),
        ("match", "sagehen-xgboost:1", {}),
        ("match", IMAGE, {"images": {"sagemaker-xgboost": ["serve"]}}),
    ],
)
async def test_images_that_run_with_the_servers_python(make, made, mode, image, settings):
    environments = make(mode, **settings)
    await environments.acquire(image)
    assert made.specs == []
    assert environments.python(image) == sys.executable
    environments.release(image)
