"""Cgroups, version 2: the kernel's own groups of processes, where this server may make some.

<base>                  see `own_cgroup.py`
  sagehen-<home>        a digest of the home's path
    <instance>          memory.max, pids.max, cpu.max: all containers share them
      <container>       ends as one, for want of memory too

The cgroup, version 2, that this server was started in: whether groups may be made in it.

Without root, that needs a group of one's own: `systemd-run --user --scope -p Delegate=yes`, a unit
with `Delegate=yes`, or a container whose /sys/fs/cgroup is writable.
"""

import contextlib
import hashlib
import logging
import os
import time
from pathlib import Path

from sagehen.agent.instances.limits import InstanceLimit, LimitHits, Limits
from sagehen.agent.instances.process_tree import descendants

__all__ = [
    "Cgroup",
    "Cgroups",
    "enable",
    "find_base",
    "leave_to_children",
    "open_cgroups",
    "try_joining",
    "write",
]

log = logging.getLogger(__name__)

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


EMPTYING_SECONDS = 5.0
CPU_PERIOD_MICROSECONDS = 100_000
CPU_WEIGHT_PER_VCPU = 50
"""ml.m5.large, with two, has what the kernel gives who says nothing: 100."""
_LIMITS = {
    "memory": InstanceLimit.MEMORY,
    "pids": InstanceLimit.PROCESSES,
    "cpu": InstanceLimit.CPU,
}
"""By the kernel's controller."""


class Cgroup:
    """The group of one container, below its instance's."""

    def __init__(self, path: Path, enforced: frozenset[InstanceLimit] = frozenset()) -> None:
        self.enforced = enforced
        """What the kernel sees to; the rest is for others to do."""
        self._path = path
        # It may be there from a life before of the container.
        self._hits_before = self._count()

    @property
    def procs(self) -> Path:
        """Who writes itself there is in it."""
        return self._path / "cgroup.procs"

    def kill(self) -> None:
        """End every process in it, whatever it has done to get away."""
        with contextlib.suppress(OSError):
            write(self._path / "cgroup.kill", "1")

    def hits(self) -> LimitHits:
        """Since it was made; of processes and CPU, the whole instance's."""
        return {limit: now - self._hits_before[limit] for limit, now in self._count().items()}

    def memory_bytes(self) -> int | None:
        """Memory that its processes hold, however many they are; None where it is not counted."""
        held = _counts(self._path / "memory.stat")
        return held["anon"] + held["file_mapped"] if "anon" in held else None

    def remove(self) -> None:
        """Once its processes have ended, which is waited for. Blocks."""
        deadline = time.monotonic() + EMPTYING_SECONDS
        while not _remove(self._path):
            if time.monotonic() > deadline:
                log.warning("The cgroup %s does not get empty.", self._path)
                return
            time.sleep(0.01)
        _remove(self._path.parent)  # Unless the instance has other containers.

    def _count(self) -> LimitHits:
        own, instance = self._path, self._path.parent
        memory = _counts(own / "memory.events")
        # Newer kernels count where the limit is, older ones where the process was.
        refused = _counts(own / "pids.events"), _counts(instance / "pids.events")
        found = {
            InstanceLimit.MEMORY: memory.get("oom_group_kill", memory.get("oom_kill", 0)),
            InstanceLimit.PROCESSES: sum(events.get("max", 0) for events in refused),
            InstanceLimit.CPU: _counts(instance / "cpu.stat").get("nr_throttled", 0),
        }
        return {limit: count for limit, count in found.items() if limit in self.enforced}


class Cgroups:
    """Makes the groups of one home's containers, in a folder that is there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        listed = (folder / "cgroup.subtree_control").read_text().split()
        self.controllers = frozenset(listed) & _LIMITS.keys()

    def make(self, instance: str, container: str, limits: Limits) -> Cgroup:
        """The group for one container of an instance. Raises OSError."""
        above = self._folder / instance
        above.mkdir(exist_ok=True)
        for controller, name, value in _files(limits):
            if controller in self.controllers:
                write(above / name, value)
        enable(above, self.controllers)
        path = above / container
        path.mkdir(exist_ok=True)
        if "memory" in self.controllers:
            write(path / "memory.oom.group", "1")
        return Cgroup(path, frozenset(_LIMITS[controller] for controller in self.controllers))

    def close(self) -> None:
        """When there are no more containers."""
        _remove(self._folder)

    def clear(self) -> None:
        """End what an earlier agent left in them, and remove them. Blocks."""
        for container in self._folder.glob("*/*/"):
            left = Cgroup(container)
            left.kill()
            left.remove()


def open_cgroups(home: Path) -> Cgroups | None:
    """The groups for a home's containers, emptied; None where none can be made. Blocks."""
    try:
        base = find_base()
        if base is None:
            raise OSError("cgroups of version 2 are not mounted")
        folder = base / f"sagehen-{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}"
        folder.mkdir(exist_ok=True)
        try_joining(folder)
        leave_to_children(base, os.getppid())
        for group in (base, folder):
            enable(group, frozenset(_LIMITS))
        groups = Cgroups(folder)
        groups.clear()
    except OSError as error:
        log.info("Containers are held to their limits by measuring: %s.", error)
        return None
    held = ",".join(sorted(groups.controllers))
    log.info("Containers have cgroups.", extra={"folder": folder, "controllers": held})
    return groups


def _files(limits: Limits) -> list[tuple[str, str, str]]:
    """Controller, file and value of each."""
    period = CPU_PERIOD_MICROSECONDS
    quota = None if limits.cpus is None else limits.cpus * period
    files = [
        ("memory", "memory.max", _or_max(limits.memory_bytes)),
        ("pids", "pids.max", _or_max(limits.processes)),
        ("cpu", "cpu.max", f"{_or_max(quota)} {period}"),
    ]
    if limits.vcpus is not None:
        weight = min(10_000, limits.vcpus * CPU_WEIGHT_PER_VCPU)
        files.append(("cpu", "cpu.weight", str(weight)))
    return files


def _or_max(value: int | None) -> str:
    return "max" if value is None else str(value)


def _remove(group: Path) -> bool:
    """Whether it is gone."""
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _counts(path: Path) -> dict[str, int]:
    """A file of names and numbers; empty where there is none."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    return {name: int(count) for name, _, count in (line.partition(" ") for line in lines)}
