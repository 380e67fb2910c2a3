"""Watches the rest of the machine: a measurement beside other work means little."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import psutil

Result = TypeVar("Result")

CALM_CORES = 0.15
"""The limit of CPU time that other processes may use during a measurement."""
LOOK_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 120
TRIES = 5


@dataclass
class OtherLoad:
    """Watches over measurements; `worst_cores` is what they had beside them at most."""

    ignored: bool = False
    """Measure at once, whatever the machine does."""
    worst_cores: float = 0.0
    disturbed: int = field(default=0)
    """Measurements that were made again."""
    watched: int = field(default=0)

    def undisturbed(self, measure: Callable[[], Result]) -> Result:
        """The result of `measure` made in calm, or of the calmest of several tries."""
        if self.ignored:
            return measure()
        results = []
        self.watched += 1
        for _ in range(TRIES):
            wait_for_calm()
            before = foreign_seconds(), time.perf_counter()
            result = measure()
            cores = (foreign_seconds() - before[0]) / (time.perf_counter() - before[1])
            results.append((cores, result))
            if cores <= CALM_CORES:
                break
            self.disturbed += 1
        cores, result = min(results, key=lambda pair: pair[0])
        self.worst_cores = max(self.worst_cores, cores)
        return result

    def describe(self) -> str:
        """A line of Markdown."""
        if not self.watched:
            return "- Tried out: nobody looked after what other processes did meanwhile."
        return (
            f"- Other processes used at most {self.worst_cores:.2f} cores beside a measurement; "
            f"{self.disturbed} were made again because of them."
        )


def wait_for_calm() -> None:
    """Return when the others rest, or after two minutes."""
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while time.monotonic() < deadline:
        before = foreign_seconds()
        time.sleep(LOOK_SECONDS)
        if (foreign_seconds() - before) / LOOK_SECONDS <= CALM_CORES:
            return


def foreign_seconds() -> float:
    """CPU seconds of the machine since its start that neither we nor our children used."""
    total = psutil.cpu_times()
    return total.user + total.nice + total.system + total.irq + total.softirq - our_seconds()


def our_seconds() -> float:
    """Returns the CPU seconds of this process, its ended children and its living descendants."""
    own = os.times()
    seconds = own.user + own.system + own.children_user + own.children_system
    for process in psutil.Process().children(recursive=True):
        try:
            used = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds += used.user + used.system + used.children_user + used.children_system
    return seconds
