"""What every job of a node shares."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sagehen.agent.launcher import Launcher
from sagehen.clock import Clock
from sagehen.home import Home
from sagehen.objects import ObjectStore
from sagehen.threads import Threads

if TYPE_CHECKING:
    from sagehen.settings import Settings

__all__ = ["JobPace", "JobSurroundings"]

TRANSFERS = 64
"""At once, of all jobs; more wait."""


@dataclass(frozen=True, kw_only=True)
class JobPace:
    """How often things are looked at, and how long they may take."""

    checkpoint_seconds: float = 1.0
    """From one look at the checkpoints of a running job to the next."""
    metrics_seconds: float = 5.0
    """From one report of a running job's own metrics to the next."""
    other_hosts_seconds: float = 5.0
    """From SIGTERM to SIGKILL for the hosts of a job of which one has failed."""
    shutdown_grace_seconds: float = 10.0
    """The same when the agent itself is to end."""
    shutdown_seconds: float = 25.0
    """How long a stopping agent waits for its jobs' last checkpoints; what is not saved then is
    lost with it. Less than what its supervisor gives it."""


@dataclass(frozen=True, kw_only=True)
class JobSurroundings:
    settings: "Settings"
    home: Home
    objects: ObjectStore
    launcher: Launcher
    clock: Clock
    threads: Threads = field(default_factory=lambda: Threads(TRANSFERS, "jobs"))
    """For what reads and writes objects: a store that hangs holds up no instance."""
    pace: JobPace = field(default_factory=JobPace)
