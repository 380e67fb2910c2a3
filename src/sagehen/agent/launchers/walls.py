"""The walls between containers and their machine: which ones a start puts up, and which hold here.

A wall is a namespace of the kernel with what makes it useful. Another kind of namespace is a member
of `Wall`, options in `view_options`, and a step of `become_container`.
"""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from sagehen.agent.launchers.launcher import LaunchPlan

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["NO_WALLS", "OPT_ML", "Wall", "Walls", "desired_walls", "view_options"]

OPT_ML = Path("/opt/ml")
ETC = Path("/etc")
SHARED_MEMORY = Path("/dev/shm")
PRIVATE_FOLDERS = {"/tmp": ("tmp", 0o1777), "/var/tmp": ("var-tmp", 0o1777), "/run": ("run", 0o755)}
"""names below the container's folder, and modes"""


class Wall(StrEnum):
    FILES = "files"
    """/opt/ml, /tmp, /run and /dev/shm of its own; the home is hidden"""
    ETC = "etc"
    """changes to /etc are the container's own"""
    PROCESSES = "processes"
    """process table, signals and IPC of its own"""


Walls = frozenset[Wall]
NO_WALLS: Walls = frozenset()


def desired_walls(settings: "Settings") -> Walls:
    """The walls that the user wants."""
    if not settings.mount_opt_ml:
        return NO_WALLS
    return frozenset(Wall) - (
        {Wall.PROCESSES} if settings.container_processes == "machine" else set()
    )


def view_options(plan: LaunchPlan, walls: Walls) -> Iterator[str]:
    """Yields the options of `become_container` for what the container sees."""
    if Wall.FILES not in walls or plan.base is None:
        return
    view = plan.view
    yield f"base={plan.base}"
    if plan.hosts is not None:
        yield f"hosts={plan.hosts}"
    if view.hidden:
        yield f"cover={view.hidden[0].parent}//{'/'.join(path.name for path in view.hidden)}"
    if plan.own_folder is not None:
        for folder, (name, mode) in PRIVATE_FOLDERS.items():
            yield f"private={folder}//{plan.own_folder / name}//{mode:o}"
        memory = plan.limits.memory_bytes
        # Docker's default of 64 MiB is too little for the workers of PyTorch.
        yield f"shown={plan.own_folder}"
        yield f"memory={SHARED_MEMORY}//{memory // 2 if memory is not None else ''}"
    yield from (f"empty={folder}" for folder in view.emptied)
    yield from (f"shown={path}" for path in view.shown)
    if Wall.ETC in walls:
        yield f"overlay={ETC}"
    if Wall.PROCESSES in walls:
        yield "processes=own"
