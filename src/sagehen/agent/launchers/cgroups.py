"""Cgroups, version 2: kernel limits for containers, where this server may create groups.

<base>                  see `find_base`
  sagehen-<home>        a digest of the home's path
    <instance>          memory.max, pids.max, cpu.max: shared by its containers
      <container>       killed as a whole when out of memory

Without root, the server needs a group of its own: `systemd-run --user --scope -p Delegate=yes`, a
unit with `Delegate=yes`, or a container with a writable /sys/fs/cgroup.
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
"""for this server's own processes, if the base must be empty"""
MOVING_ATTEMPTS = 20
"""a fork during the move leaves a child for the next attempt"""


def find_base() -> Path | None:
    """Returns None if cgroups of version 2 are not mounted."""
    own = _find_own()
    # An earlier agent may have moved all processes there.
    return own.parent if own is not None and own.name == PLATFORM else own


def try_joining(group: Path) -> None:
    """Raises OSError if processes may not be moved there."""
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
    """Empties a group: one with limited children may hold no process itself, except the root group.

    Args:
        server_pid: ancestor of this server's processes.

    Raises:
        OSError: the group holds other processes.
    """
    if not (base / "cgroup.type").exists() or not _members(base):
        return
    own_pids = set(descendants(server_pid))
    strangers = [pid for pid in _members(base) if pid not in own_pids]
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
    raise OSError(f"{base} still has processes")


def enable(group: Path, controllers: frozenset[str]) -> None:
    for controller in controllers:
        with contextlib.suppress(OSError):
            write(group / "cgroup.subtree_control", f"+{controller}")


def write(path: Path, text: str) -> None:
    """Raises OSError; unlike `write_text`, also for a missing file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _find_own() -> Path | None:
    groups = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((line for line in groups if line.startswith("0::")), None)
    for mount in Path("/proc/self/mountinfo").read_text().splitlines():
        mount_fields, _, filesystem = mount.partition(" - ")
        if own is not None and filesystem.startswith("cgroup2 "):
            root, point = mount_fields.split()[3:5]
            below = os.path.relpath(own[3:], root)
            if not below.startswith(".."):
                return Path(os.path.normpath(os.path.join(point, below)))
    return None


def _members(group: Path) -> list[int]:
    return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]


EMPTYING_SECONDS = 5.0
CPU_PERIOD_MICROSECONDS = 100_000
CPU_WEIGHT_PER_VCPU = 50
"""ml.m5.large, with two vCPUs, gets the kernel's default: 100"""
_LIMITS = {
    "memory": InstanceLimit.MEMORY,
    "pids": InstanceLimit.PROCESSES,
    "cpu": InstanceLimit.CPU,
}


class Cgroup:
    """One container's group, below its instance's."""

    def __init__(self, path: Path, enforced: frozenset[InstanceLimit] = frozenset()) -> None:
        self.enforced = enforced
        self._path = path
        self._hits_before = self._count()

    @property
    def procs(self) -> Path:
        """Processes join by writing their PID there."""
        return self._path / "cgroup.procs"

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            write(self._path / "cgroup.kill", "1")

    def hits(self) -> LimitHits:
        """Hits since creation; those of processes and CPU are the whole instance's."""
        return {limit: now - self._hits_before[limit] for limit, now in self._count().items()}

    def memory_bytes(self) -> int | None:
        """Returns None without the memory controller."""
        held = _counts(self._path / "memory.stat")
        return held["anon"] + held["file_mapped"] if "anon" in held else None

    def remove(self) -> None:
        """Waits until the processes have ended. Blocks."""
        deadline = time.monotonic() + EMPTYING_SECONDS
        while not _remove(self._path):
            if time.monotonic() > deadline:
                log.warning("The cgroup %s still has processes and cannot be removed.", self._path)
                return
            time.sleep(0.01)
        _remove(self._path.parent)  # fails while the instance has other containers

    def _count(self) -> LimitHits:
        own, instance = self._path, self._path.parent
        memory = _counts(own / "memory.events")
        # Newer kernels count at the limit, older ones at the process.
        refused = _counts(own / "pids.events"), _counts(instance / "pids.events")
        counts = {
            InstanceLimit.MEMORY: memory.get("oom_group_kill", memory.get("oom_kill", 0)),
            InstanceLimit.PROCESSES: sum(events.get("max", 0) for events in refused),
            InstanceLimit.CPU: _counts(instance / "cpu.stat").get("nr_throttled", 0),
        }
        return {limit: count for limit, count in counts.items() if limit in self.enforced}


class Cgroups:
    """The groups of one home's containers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        listed = (folder / "cgroup.subtree_control").read_text().split()
        self.controllers = frozenset(listed) & _LIMITS.keys()

    def make(self, instance: str, container: str, limits: Limits) -> Cgroup:
        """Raises OSError."""
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
        _remove(self._folder)

    def clear(self) -> None:
        """Kills and removes an earlier agent's groups. Blocks."""
        for container in self._folder.glob("*/*/"):
            group = Cgroup(container)
            group.kill()
            group.remove()


def open_cgroups(home: Path) -> Cgroups | None:
    """Returns None if groups cannot be created. Blocks."""
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
        log.info("Without cgroups, limits are enforced by polling: %s.", error)
        return None
    held = ",".join(sorted(groups.controllers))
    log.info("Containers have cgroups.", extra={"folder": folder, "controllers": held})
    return groups


def _files(limits: Limits) -> list[tuple[str, str, str]]:
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
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _counts(path: Path) -> dict[str, int]:
    """Returns an empty dict if the file is missing."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    return {name: int(count) for name, _, count in (line.partition(" ") for line in lines)}
