"""Python environments with the libraries that the tags of AWS's images name.

The agent makes them, before a container starts: a container without a network could not, and all of
a node's containers share them.
"""

import asyncio
import sys
from collections import Counter
from typing import TYPE_CHECKING

from sagehen.base.home import Home
from sagehen.base.user_environment import pip_variables
from sagehen.containers.python_envs.environments import EnvironmentLease, Environments
from sagehen.containers.python_envs.image_libraries import ImageLibraries
from sagehen.frame.image_versions import MATCH, find_versions
from sagehen.frame.images import find_launch

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["ImageEnvironments"]

INSTALL_SECONDS = 3600.0
"""as long as model data may take by default"""


class ImageEnvironments:
    """Each is kept while containers of its image run."""

    def __init__(self, home: Home, settings: "Settings") -> None:
        self._settings = settings
        self._environments = Environments(
            folder=home.environments,
            own_folder=home.environments,
            max_bytes=settings.environment_cache_bytes,
            seconds=INSTALL_SECONDS,
            variables=pip_variables(),
        )
        self._leases: dict[str, EnvironmentLease] = {}
        self._users: Counter[str] = Counter()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def acquire(self, image: str) -> None:
        """Makes the environment, after which `python` names its interpreter.

        Callers of one image wait for one installation; one that is cancelled leaves it running.
        Raises RequirementsError.
        """
        spec = self._spec(image)
        if spec is None:
            return
        self._users[image] += 1
        try:
            if image not in self._leases:
                await asyncio.shield(self._install(image, spec))
        except BaseException:
            self.release(image)
            raise

    def _install(self, image: str, spec: ImageLibraries) -> asyncio.Task[None]:
        task = self._tasks.get(image)
        if task is None:
            task = self._tasks[image] = asyncio.create_task(self._lease(image, spec))
            task.add_done_callback(lambda done: self._forget(image, done))
        return task

    async def _lease(self, image: str, spec: ImageLibraries) -> None:
        lease = await asyncio.to_thread(self._environments.acquire, spec)
        if self._users[image] > 0:
            self._leases[image] = lease
        else:
            lease.release()

    def _forget(self, image: str, task: asyncio.Task[None]) -> None:
        del self._tasks[image]
        if not task.cancelled():
            task.exception()  # marks it as retrieved: its callers may have been cancelled

    def release(self, image: str) -> None:
        """Undoes one `acquire` that returned."""
        if self._users[image] > 0:
            self._users[image] -= 1
        if self._users[image] == 0:
            del self._users[image]
            if lease := self._leases.pop(image, None):
                lease.release()

    def python(self, image: str) -> str:
        """Returns the interpreter of the image's programs: the server's, unless acquired."""
        lease = self._leases.get(image)
        return sys.executable if lease is None else lease.python

    def close(self) -> None:
        """Ends running installations."""
        self._environments.close()

    def _spec(self, image: str) -> ImageLibraries | None:
        if self._settings.image_versions != MATCH:
            return None
        launch = find_launch(image, self._settings.images, self._settings.launcher)
        versions = find_versions(image)
        if versions is None or (launch is not None and launch.adapter is None):
            return None
        libraries = tuple(f"{name}=={version}" for name, version in versions.libraries.items())
        return ImageLibraries(image, versions.python, libraries, versions.companions)
