"""The cgroup, version 2, that this server was started in: whether groups may be made in it.

Without root, that needs a group of one's own: `systemd-run --user --scope -p Delegate=yes`, a unit
with `Delegate=yes`, or a container whose /sys/fs/cgroup is writable.
"""

import contextlib
import os
from pathlib import Path

from sagehen.agent.process_tree import descendants

__all__ = ["enable", "find_base", "leave_to_children", "try_joining", "write"]

PLATFORM = "sagehen-platform"
"""Where this server's own processes go, if they have to make room."""
MOVING_ATTEMPTS = 20
"""What forks while it is moved leaves its child behind, for the next attempt."""


def find_base() -> Path | None:
    """The group to make groups in; None where cgroups of version 2 are not mounted."""
    own = _find_own()
    # An agent before this one may have moved everybody.
    return own.parent if own is not None and own.name == PLATFORM else own


def try_joining(group: Path) -> None:
    """Raises OSError: processes may not be moved into its children."""
    before = _find_own()
    child = group / "probe"
    child.mkdir(exist_ok=True)
    try:
        write(child / "cgroup.procs", str(os.getpid()))
        if before is not None:
            write(before / "cgroup.procs", str(os.getpid()))
    finally:
        child.rmdir()


def leave_to_children(base: Path, server_pid: int) -> None:
    """Empty a group: one whose children have limits may hold no process itself.

    The root of all groups may, and is left as it is.

    Args:
        server_pid: the process that this server's others descend from.

    Raises:
        OSError: it holds processes that are not this server's to move.
    """
    if not (base / "cgroup.type").exists() or not _members(base):
        return
    ours = set(descendants(server_pid))
    strangers = [pid for pid in _members(base) if pid not in ours]
    if strangers:
        raise OSError(f"{base} holds processes that are not of this server, such as {strangers[0]}")
    platform = base / PLATFORM
    platform.mkdir(exist_ok=True)
    for _ in range(MOVING_ATTEMPTS):
        for pid in _members(base):
            with contextlib.suppress(ProcessLookupError):
                write(platform / "cgroup.procs", str(pid))
        if not _members(base):
            return
    raise OSError(f"{base} does not get empty")


def enable(group: Path, controllers: frozenset[str]) -> None:
    """Have a group's children limited by those of `controllers` that there are."""
    for controller in controllers:
        with contextlib.suppress(OSError):
            write(group / "cgroup.subtree_control", f"+{controller}")


def write(path: Path, text: str) -> None:
    """Raises OSError. A file that is not there is not made, as `write_text` would."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _find_own() -> Path | None:
    groups = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((line for line in groups if line.startswith("0::")), None)
    for mount in Path("/proc/self/mountinfo").read_text().splitlines():
        where, _, what = mount.partition(" - ")
        if own is not None and what.startswith("cgroup2 "):
            root, point = where.split()[3:5]
            below = os.path.relpath(own[3:], root)
            if not below.startswith(".."):
                return Path(os.path.normpath(os.path.join(point, below)))
    return None


def _members(group: Path) -> list[int]:
    return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
