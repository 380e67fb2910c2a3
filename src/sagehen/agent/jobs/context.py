"""State that a node's jobs share: pace, threads, and the reports of ended attempts."""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sagehen.agent.gpus.pool import GpuPool
from sagehen.agent.image_environments import ImageEnvironments
from sagehen.agent.launchers.launcher import Launcher
from sagehen.agent.launchers.own_network import NO_NETWORKS, NetworkSupport
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
"""concurrent, of all jobs"""


@dataclass(frozen=True, kw_only=True)
class JobPace:
    """Intervals and timeouts of jobs."""

    checkpoint_seconds: float = 1.0
    metrics_seconds: float = 5.0
    other_hosts_seconds: float = 5.0
    """from SIGTERM to SIGKILL, after another host has failed"""
    shutdown_grace_seconds: float = 10.0
    """the same when the agent stops"""
    shutdown_seconds: float = 25.0
    """for last checkpoints, which are lost then; less than the supervisor's grace"""


@dataclass(frozen=True, kw_only=True)
class JobContext:
    settings: "Settings"
    home: Home
    objects: ObjectStore
    launcher: Launcher
    clock: Clock
    gpus: GpuPool
    image_environments: ImageEnvironments
    threads: Threads = field(default_factory=lambda: Threads(TRANSFERS, "jobs"))
    """for transfers: a hanging store must not block instances"""
    pace: JobPace = field(default_factory=JobPace)
    networks: NetworkSupport = NO_NETWORKS
    check_lease: Callable[[], None] = lambda: None
    """raises Unavailable while no job may run here, nor complete an upload"""


class EndedReports:
    """Reports of ended attempts, a file each, until control has read them. Blocks briefly.

    A power cut loses them: control runs the attempt again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self) -> list[JobReport]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for unfinished in self._folder.glob("*.new"):
            unfinished.unlink(missing_ok=True)
        reports = (_read(path) for path in sorted(self._folder.glob("*.json")))
        return [report for report in reports if report is not None]

    def save(self, report: JobReport) -> None:
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
