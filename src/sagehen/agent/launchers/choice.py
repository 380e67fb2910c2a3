"""Chooses the launcher of a container by its plan."""

from pathlib import Path

from sagehen.agent.launchers.launcher import Launcher, LaunchPlan, Process

__all__ = ["LauncherChoice"]


class LauncherChoice:
    """Starts programs of this machine by one launcher, and images by another."""

    def __init__(self, programs: Launcher, images: Launcher) -> None:
        self._programs = programs
        self._images = images

    def container_base(self, base: Path) -> Path:
        """The base of programs; images always have /opt/ml."""
        return self._programs.container_base(base)

    async def start(self, plan: LaunchPlan) -> Process:
        launcher = self._programs if plan.image is None else self._images
        return await launcher.start(plan)
