"""Tests whether containers can see their folder at /opt/ml."""

import logging
import subprocess
import sys
import tempfile
from pathlib import Path

from sagehen.agent.errors import CannotStart
from sagehen.agent.launchers.launcher import LaunchPlan
from sagehen.agent.launchers.orphans import Orphans
from sagehen.agent.launchers.spawn import spawn

__all__ = ["OPT_ML", "can_mount"]

log = logging.getLogger(__name__)

OPT_ML = Path("/opt/ml")
_MARK = "seen"


async def can_mount(folder: Path, orphans: Orphans) -> bool:
    """Tries a mount in a container; logs why it fails. `folder` must be writable."""
    problem = await _try(folder, orphans)
    if problem is not None:
        log.info(
            "/opt/ml cannot be mounted (%s): containers find it by variables such as SM_MODEL_DIR, "
            "hosts of a job have no names, and network isolation does not hide keys.",
            problem,
        )
    return problem is None


async def _try(folder: Path, orphans: Orphans) -> str | None:
    for needed in (folder, Path(sys.prefix)):
        if needed.is_relative_to(OPT_ML):
            return f"{needed} would be hidden"
    with tempfile.TemporaryDirectory(dir=folder, prefix="opt-ml-") as base:
        (Path(base) / _MARK).touch()
        plan = LaunchPlan(
            instance_id="probe",
            name="probe",
            command=("/bin/sh", "-c", f"test -e {OPT_ML}/{_MARK}"),
            environment={},
            folder=folder,
            log=folder / "unused",
            log_bytes=0,
            base=Path(base),
        )
        try:
            process = await spawn(plan, subprocess.DEVNULL, None, orphans, mounts=True)
        except (OSError, CannotStart) as error:
            return getattr(error, "strerror", None) or str(error)
        status = process.wait()
        orphans.forget(process.pid)
    return None if status == 0 else "what was mounted is not seen"
