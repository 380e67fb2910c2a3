"""How a container is started: the interface. Its implementations are in `launchers/`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sagehen.agent.instances.limits import NO_LIMITS, LimitHits, Limits

__all__ = ["LaunchPlan", "Launcher", "Process"]


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """One container, ready to be started."""

    instance_id: str
    name: str
    """Of the container in its instance."""
    command: tuple[str, ...]
    environment: dict[str, str]
    """All of it: nothing is inherited."""
    folder: Path
    """The working folder."""
    log: Path
    """Standard output and error go there, appended."""
    log_bytes: int
    """Size at which the log is rotated, one old one kept."""
    limits: Limits = NO_LIMITS
    """Shared by all containers of the instance."""
    listener: Callable[[bytes], None] | None = None
    """Called with what it prints, in a thread, and with nothing at the end."""
    base: Path | None = None
    """What the container is to see as /opt/ml, where that can be done."""
    hosts: Path | None = None
    """What it is to see as /etc/hosts, where it sees its base."""
    hidden: tuple[Path, ...] = ()
    """What it is not to see, of one folder, where it sees its base. They need not be there. The
    folder itself is read-only then."""


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

    async def cpu_seconds(self) -> float:
        """What it and everything it started have used of the processor; 0 when it has ended."""

    async def listening_ports(self) -> list[int]:
        """The TCP ports that it and everything it started listen on; none when it has ended."""

    def note(self, line: str) -> None:
        """Add a line of the platform's to what it has printed. Blocks."""

    @property
    def ended_because(self) -> str | None:
        """Who ended it, and why, where that is known and was not asked for by `kill`."""

    def hits(self) -> LimitHits:
        """How often it has met its limits so far."""


class Launcher(Protocol):
    def seen_base(self, base: Path) -> Path:
        """Where a container finds what is `base` in its plan."""

    async def start(self, plan: LaunchPlan) -> Process:
        """Start a container.

        Raises:
            CannotStart: its command cannot be run.
        """
