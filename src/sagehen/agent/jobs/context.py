"""What every job of a node shares.

Reports of ended attempts, on disk until control has heard of them.
"""

import contextlib
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sagehen.agent.launchers.launcher import Launcher
from sagehen.base.clock import Clock
from sagehen.base.concurrency import Threads
from sagehen.base.home import Home
from sagehen.frame.job_specs import JobReport
from sagehen.services.s3.storage import ObjectStore

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["EndedReports", "JobContext", "JobPace"]

log = logging.getLogger(__name__)

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
class JobContext:
    settings: "Settings"
    home: Home
    objects: ObjectStore
    launcher: Launcher
    clock: Clock
    threads: Threads = field(default_factory=lambda: Threads(TRANSFERS, "jobs"))
    """For what reads and writes objects: a store that hangs holds up no instance."""
    pace: JobPace = field(default_factory=JobPace)


class EndedReports:
    """A file for each, in a folder. Every method blocks, for as long as a small file takes.

    They outlive the agent, not a loss of power: what is not there was lost, and is run again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self) -> list[JobReport]:
        """Those that an earlier agent left."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for unfinished in self._folder.glob("*.new"):
            unfinished.unlink(missing_ok=True)
        found = (_read(path) for path in sorted(self._folder.glob("*.json")))
        return [report for report in found if report is not None]

    def keep(self, report: JobReport) -> None:
        """Raises OSError."""
        path = self._path(report.attempt_id)
        draft = path.with_suffix(".new")
        draft.write_bytes(msgspec.json.encode(report))
        draft.replace(path)

    def forget(self, attempt_id: str) -> None:
        self._path(attempt_id).unlink(missing_ok=True)

    def _path(self, attempt_id: str) -> Path:
        return self._folder / f"{attempt_id}.json"


def _read(path: Path) -> JobReport | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=JobReport)
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("The report %s cannot be read and is set aside: %s", path.name, error)
        with contextlib.suppress(OSError):
            path.rename(path.with_suffix(".unreadable"))
        return None
