"""Cgroups, version 2: the kernel's own groups of processes, where this server may make some.

<base>                  see `own_cgroup.py`
  sagehen-<home>        a digest of the home's path
    <instance>          memory.max, pids.max, cpu.max: all containers share them
      <container>       ends as one, for want of memory too
"""

import contextlib
import hashlib
import logging
import os
import time
from pathlib import Path

from sagehen.agent.launchers.own_cgroup import (
    enable,
    find_base,
    leave_to_children,
    try_joining,
    write,
)
from sagehen.agent.limits import InstanceLimit, LimitHits, Limits

__all__ = ["Cgroup", "Cgroups", "open_cgroups"]

log = logging.getLogger(__name__)

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
