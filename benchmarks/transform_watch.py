"""Watches the processes of a server while a job runs: their memory, and their processor time."""

import threading
import time
from collections import defaultdict
from contextlib import AbstractContextManager
from types import TracebackType
from typing import NamedTuple, Self

import psutil

SAMPLE_SECONDS = 0.5
ROLES = {
    "sagehen.app.roles.transform_runner": "runner",
    "sagehen.app.roles.control": "control",
    "sagehen.app.roles.gateway": "gateway",
    "sagehen.app.roles.agent": "agent",
    "sagehen.containers.modelserver": "model server",
}


class Sample(NamedTuple):
    """One look at one process."""

    seconds: float
    """since the watch began"""
    pss: float
    """MiB; pages that processes share are divided between them"""
    rss: float
    """MiB"""
    processor: float
    """seconds, until now"""


class Watch(AbstractContextManager["Watch"]):
    """Samples all processes below one, in a thread."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.began = time.perf_counter()
        self.samples: dict[tuple[str, int], list[Sample]] = defaultdict(list)
        """by role and process id"""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            for process in self._root.children(recursive=True):
                try:
                    self._look_at(process)
                except (psutil.Error, OSError):
                    continue
            if self._ended.wait(SAMPLE_SECONDS):
                return

    def _look_at(self, process: psutil.Process) -> None:
        role = role_of(process)
        if not role:
            return
        memory = process.memory_full_info()
        used = process.cpu_times()
        sample = Sample(
            time.perf_counter() - self.began,
            memory.pss / 2**20,
            memory.rss / 2**20,
            used.user + used.system,
        )
        self.samples[role, process.pid].append(sample)

    def of(self, role: str) -> list[list[Sample]]:
        """Returns the samples of each process of a role."""
        return [samples for (of_role, _), samples in self.samples.items() if of_role == role]


def role_of(process: psutil.Process) -> str:
    words = process.cmdline()
    return next((role for module, role in ROLES.items() if module in words), "")


def processor_seconds(pid: int) -> float:
    """Returns the processor time of a server until now, with that of its ended processes."""
    total = 0.0
    root = psutil.Process(pid)
    for process in [root, *root.children(recursive=True)]:
        try:
            used = process.cpu_times()
        except psutil.Error:
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return total
