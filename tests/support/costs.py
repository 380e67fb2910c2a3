"""What tests cost: seconds of a processor, those of the processes that they start included.

They say the same on a busy machine as on a quiet one, unlike the time that passes.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

__all__ = ["OPTION", "Costs", "descendants_seconds", "register"]

OPTION = "--costs"
COLLECTION = "(start and collection)"
SUMS = ("files", "tests", "fixtures", "waits", "servers")
TICKS = os.sysconf("SC_CLK_TCK")


def register(config: pytest.Config) -> None:
    if path := config.getoption(OPTION):
        config.pluginmanager.register(Costs(Path(path).absolute()))


@dataclass(eq=False)
class Costs:
    """Counts in each worker, and writes the sums of all of them as JSON when the run ends.

    A worker writes its own after each file, so that a run that is broken off has told them too.
    """

    path: Path
    files: dict[str, float] = field(default_factory=dict)
    tests: dict[str, float] = field(default_factory=dict)
    fixtures: dict[str, float] = field(default_factory=dict)
    """The set-up of those that several tests share; the file that comes first has it too."""
    waits: dict[str, float] = field(default_factory=dict)
    """What tests took of a clock's time more than of a processor's: a busy machine adds to it."""
    servers: dict[str, float] = field(default_factory=dict)
    """How many servers a file started."""
    _file: str = ""
    _before: float = 0.0
    """Of this process and its children, when the last test ended."""
    _own: float = 0.0
    """What it took to count, which is not the tests'."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        _add(self.files, COLLECTION, self._since_last())
        sys.addaudithook(self._see)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if (file := item.nodeid.partition("::")[0]) != self._file:
            self._write()
            self._file = file
        began = time.monotonic()
        try:
            return (yield)
        finally:
            spent = self._since_last()
            _add(self.files, file, spent)
            _add(self.tests, item.nodeid, spent)
            _add(self.waits, item.nodeid, time.monotonic() - began - spent)

    def _see(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen" and {"up", "--home"} <= set(map(str, args[1])):
            _add(self.servers, self._file, 1)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        before = self._count()
        try:
            return (yield)
        finally:
            name = f"{fixturedef.scope} {fixturedef.baseid}::{fixturedef.argname}"
            _add(self.fixtures, name, self._count() - before)

    def _since_last(self) -> float:
        before, self._before = self._before, self._count()
        return self._before - before

    def _count(self) -> float:
        began = os.times()
        alive = descendants_seconds()
        ended = os.times()
        self._own += sum(ended[:2]) - sum(began[:2])
        return alive + sum(ended[:4]) - self._own

    @property
    def _sums(self) -> dict[str, dict[str, float]]:
        return {name: getattr(self, name) for name in SUMS}

    def _write(self) -> None:
        if worker := os.environ.get("PYTEST_XDIST_WORKER"):
            draft = Path(f"{self.path}.{worker}.new")
            draft.write_text(json.dumps(self._sums))
            draft.replace(f"{self.path}.{worker}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._write()
        if "PYTEST_XDIST_WORKER" in os.environ:
            return
        for part in self.path.parent.glob(f"{self.path.name}.gw*"):
            if part.suffix != ".new":
                for name, sums in json.loads(part.read_text()).items():
                    for key, spent in sums.items():
                        _add(self._sums[name], key, spent)
            part.unlink()
        self.path.write_text(json.dumps(self._sums))


def _add(sums: dict[str, float], name: str, spent: float) -> None:
    sums[name] = sums.get(name, 0.0) + spent


def descendants_seconds() -> float:
    """Of the processes below this one that have not been waited for, with what those waited for."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path("/proc", name, "stat").read_bytes()
            except OSError:
                continue  # It has ended since it was listed.
            values = stat.rpartition(b") ")[2].split()
            parents[int(name)] = int(values[1])
            ticks[int(name)] = sum(map(int, values[11:15]))
    return sum(spent for pid, spent in ticks.items() if _is_below(pid, parents)) / TICKS


def _is_below(pid: int, parents: dict[int, int]) -> bool:
    while pid := parents.get(pid, 0):
        if pid == os.getpid():
            return True
    return False
