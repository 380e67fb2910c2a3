"""Keeps fork servers for the images whose containers are started by calls."""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sagehen.agent.image_environments import ImageEnvironments
from sagehen.agent.launchers.fork_servers import ForkServers
from sagehen.agent.launchers.forkable import ForkKind
from sagehen.containers.modelserver.forked import FRAMEWORKS
from sagehen.containers.python_envs.install import RequirementsError
from sagehen.frame.images import find_launch

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["WarmImages"]

log = logging.getLogger(__name__)


class WarmImages:
    """The images that control wants to start quickly, with their Python environments."""

    def __init__(
        self, settings: "Settings", environments: ImageEnvironments, servers: ForkServers
    ) -> None:
        self._settings = settings
        self._environments = environments
        self._servers = servers
        self._images: tuple[str, ...] = ()
        self._acquired: dict[str, ForkKind] = {}
        self._following: asyncio.Task[None] | None = None

    def request(self, images: Sequence[str]) -> None:
        """Replaces the images of the last request."""
        wanted = tuple(dict.fromkeys(image for image in images if self._adapter(image)))
        if wanted == self._images:
            return
        self._images = wanted
        if self._following is not None:
            self._following.cancel()
        self._following = asyncio.create_task(self._follow())

    async def close(self) -> None:
        self._images = ()
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        self._release()
        await self._servers.close()

    async def _follow(self) -> None:
        self._release()
        for image in self._images:
            adapter = self._adapter(image)
            if adapter is None or image in self._acquired:
                continue
            try:
                await self._environments.acquire(image)
            except RequirementsError as error:
                log.warning("There is no fork server for %s: %s", image, error)
                continue
            self._acquired[image] = ForkKind(self._environments.python(image), adapter)
        self._servers.keep(
            [self._acquired[each] for each in self._images if each in self._acquired]
        )

    def _release(self) -> None:
        for image in [image for image in self._acquired if image not in self._images]:
            del self._acquired[image]
            self._environments.release(image)

    def _adapter(self, image: str) -> str | None:
        launch = find_launch(image, self._settings.images, self._settings.launcher)
        return launch.adapter if launch is not None and launch.adapter in FRAMEWORKS else None
