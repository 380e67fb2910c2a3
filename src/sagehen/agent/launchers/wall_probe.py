"""Tries at start-up which walls the kernel lets this user put up around containers."""

import logging
import subprocess
import sys
import tempfile
from pathlib import Path

from sagehen.agent.launchers.launcher import LaunchPlan, View
from sagehen.agent.launchers.orphans import Orphans
from sagehen.agent.launchers.spawn import StepError, spawn
from sagehen.agent.launchers.walls import OPT_ML, Wall, Walls

__all__ = ["MissingWalls", "describe_missing", "find_walls"]

log = logging.getLogger(__name__)

_MARK = "seen"
_ENDED = "the check of what containers see ended with status"
_TRIES = 2
"""a check may end for want of memory, and a wall would be missing until the next start"""
_CHECKS = {
    Wall.FILES: f'test -e {OPT_ML}/{_MARK} && test ! -e "$SECRET"',
    Wall.ETC: "grep -q ' /etc overlay ' /proc/self/mounts",
    Wall.PROCESSES: 'test "$$" = 2 && test -e /proc/2',
}
_CONSEQUENCES = {
    Wall.FILES: "containers share /tmp and see the home; they find /opt/ml by variables such as "
    "SM_MODEL_DIR, hosts of a job have no names, and network isolation does not hide keys",
    Wall.ETC: "containers share /etc",
    Wall.PROCESSES: "containers see this machine's processes",
}

MissingWalls = dict[Wall, str]
"""why each is missing"""


async def find_walls(desired: Walls, folder: Path, orphans: Orphans) -> MissingWalls:
    """Tries `desired` in a container; logs why walls are missing. `folder` must be writable."""
    missing: MissingWalls = {}
    walls = desired
    while walls and (failure := await _find_failure(walls, folder, orphans)) is not None:
        wall, reason = failure
        dropped = walls if wall is Wall.FILES else {wall}
        missing |= dict.fromkeys(dropped, reason)
        walls -= dropped
    if missing:
        log.info("Walls around containers are missing: %s.", "; ".join(describe_missing(missing)))
    return missing


def describe_missing(missing: MissingWalls) -> list[str]:
    return [f"{wall} ({missing[wall]}): {_CONSEQUENCES[wall]}" for wall in Wall if wall in missing]


async def _find_failure(walls: Walls, folder: Path, orphans: Orphans) -> tuple[Wall, str] | None:
    """Returns the wall to go without, and the reason."""
    failure = None
    for _ in range(_TRIES):
        failure = await _try(walls, folder, orphans)
        if failure is None or not failure[1].startswith(_ENDED):
            break
    return failure


async def _try(walls: Walls, folder: Path, orphans: Orphans) -> tuple[Wall, str] | None:
    for needed in (folder, Path(sys.prefix)):
        if needed.is_relative_to(OPT_ML):
            return Wall.FILES, f"{needed} would be hidden by the containers' {OPT_ML}"
    weakest = Wall.PROCESSES if Wall.PROCESSES in walls else Wall.FILES
    with tempfile.TemporaryDirectory(dir=folder, prefix="walls-") as name:
        own, secret = Path(name) / "own", Path(name) / "secret"
        (own / "ml").mkdir(parents=True)
        (own / "ml" / _MARK).touch()
        secret.touch()
        plan = LaunchPlan(
            instance_id="probe",
            name="probe",
            command=("/bin/sh", "-c", " && ".join(_CHECKS[wall] for wall in sorted(walls))),
            environment={"SECRET": str(secret)},
            folder=own,
            log=own / "unused",
            log_bytes=0,
            base=own / "ml",
            own_folder=own,
            view=View(hidden=(secret, own)),
        )
        try:
            process = await spawn(plan, subprocess.DEVNULL, None, orphans, walls=walls)
        except StepError as error:
            return _STEPS.get(error.step, weakest), error.strerror or ""
        except OSError as error:
            return weakest, error.strerror or str(error)
        status = process.wait()
        process.kill_all()
        process.wait_for_init()
    return None if status == 0 else (weakest, f"{_ENDED} {status}")


_STEPS = {"overlay": Wall.ETC, "processes": Wall.PROCESSES, "files": Wall.FILES}
"""the walls that steps of `become_container` put up"""
