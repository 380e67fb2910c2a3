"""Reports of ended attempts, on disk until control has heard of them."""

import contextlib
import logging
from pathlib import Path

import msgspec

from sagehen.domain.jobs import JobReport

__all__ = ["EndedReports"]

log = logging.getLogger(__name__)


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
