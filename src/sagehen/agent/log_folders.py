"""Keeps the number of log folders bounded: instances and jobs come and go, logs would stay."""

import contextlib
import shutil
from pathlib import Path

from sagehen.home import INSTANCE_NAME

__all__ = ["prune_job_logs", "prune_logs"]

MOST_KEPT = 50


def prune_logs(logs: Path, running: frozenset[str], most: int = MOST_KEPT) -> None:
    """Remove the oldest `endpoints/<endpoint>/<variant>/<instance>` folders. Blocks.

    Those of `running` instances stay, and of the others the `most` that were written last.
    """
    ended = [
        path
        for path in (logs / "endpoints").glob("*/*/*")
        if path.name not in running and INSTANCE_NAME.fullmatch(path.name)
    ]
    ended.sort(key=_written_at, reverse=True)
    for path in ended[most:]:
        shutil.rmtree(path, ignore_errors=True)
        for above in (path.parent, path.parent.parent):
            with contextlib.suppress(OSError):  # It is not empty, or somebody else has removed it.
                above.rmdir()


def prune_job_logs(logs: Path, running: frozenset[str], most: int) -> None:
    """Remove the oldest `training-jobs/<job>` folders. Blocks.

    Those of `running` jobs stay, and of the others the `most` that were written last.
    """
    ended = [path for path in (logs / "training-jobs").glob("*") if path.name not in running]
    if len(ended) > most:
        ended.sort(key=_written_at, reverse=True)
    for path in ended[most:]:
        shutil.rmtree(path, ignore_errors=True)


def _written_at(folder: Path) -> float:
    """When something in it was; 0 where nothing is there, any more."""
    try:
        return max((file.stat().st_mtime for file in folder.iterdir()), default=0.0)
    except OSError:
        return 0.0
