"""The interface of launchers, which start containers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sagehen.agent.instances.limits import NO_LIMITS, LimitHits, Limits

__all__ = ["LaunchPlan", "Launcher", "Process"]


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    instance_id: str
    name: str
    """the container's, in its instance"""
    command: tuple[str, ...]
    environment: dict[str, str]
    """complete: nothing is inherited"""
    folder: Path
    """the working folder"""
    log: Path
    """receives stdout and stderr, appended"""
    log_bytes: int
    """size at which the log is rotated; one old file is kept"""
    limits: Limits = NO_LIMITS
    """shared by all containers of the instance"""
    listener: Callable[[bytes], None] | None = None
    """called in a thread with all output, and with b"" at the end"""
    base: Path | None = None
    """mounted at /opt/ml where possible"""
    hosts: Path | None = None
    """mounted at /etc/hosts, only with `base` mounted"""
    hidden: tuple[Path, ...] = ()
    """paths in one folder to hide, only with `base` mounted; they need not exist, and the folder
    becomes read-only"""


class Process(Protocol):
    async def wait(self) -> int:
        """Waits for the end; returns the exit status, or minus the signal that ended the process."""

    def terminate(self) -> None:
        """Asks the process to end; does nothing if it has ended."""

    def kill(self) -> None:
        """Kills the process and its descendants; does nothing if it has ended."""

    def last_lines(self) -> list[str]:
        """The end of its output."""

    async def memory_bytes(self) -> int:
        """Memory of the process and its descendants; 0 if it has ended."""

    async def cpu_seconds(self) -> float:
        """CPU time of the process and its descendants; 0 if it has ended."""

    async def listening_ports(self) -> list[int]:
        """TCP ports that the process and its descendants listen on; none if it has ended."""

    def note(self, line: str) -> None:
        """Adds a line of the platform's to the log. Blocks."""

    @property
    def ended_because(self) -> str | None:
        """Why the process was ended, if that is known and `kill` did not do it."""

    def hits(self) -> LimitHits:
        """How often the limits were met so far."""


class Launcher(Protocol):
    def seen_base(self, base: Path) -> Path:
        """The path at which a container finds its plan's `base`."""

    async def start(self, plan: LaunchPlan) -> Process:
        """Raises CannotStart if the command cannot be run."""
