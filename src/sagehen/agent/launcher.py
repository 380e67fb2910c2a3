"""How a container is started: the interface. Its implementations are in `launchers/`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["LaunchPlan", "Launcher", "Process"]


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """One container, ready to be started."""

    command: tuple[str, ...]
    environment: dict[str, str]
    """All of it: nothing is inherited."""
    folder: Path
    """The working folder."""
    log: Path
    """Standard output and error go there, appended."""
    log_bytes: int
    """Size at which the log is rotated, one old one kept."""


class Process(Protocol):
    """A started container."""

    async def wait(self) -> int:
        """Return its exit status once it has ended; below 0 it is the signal that ended it."""

    def terminate(self) -> None:
        """Ask it to end. Nothing happens when it has."""

    def kill(self) -> None:
        """End it and everything it started, at once. Nothing happens when it has ended."""

    def last_lines(self) -> list[str]:
        """The end of what it has printed."""

    async def memory_bytes(self) -> int:
        """Memory held by it and everything it started; 0 when it has ended."""


class Launcher(Protocol):
    async def start(self, plan: LaunchPlan) -> Process:
        """Start a container.

        Raises:
            CannotStart: its command cannot be run.
        """
