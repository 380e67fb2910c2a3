"""Processes of user code that outlive their worker, without any process."""

import os
import signal

import pytest

from sagehen.containers import leftovers
from sagehen.containers.leftovers import MARK, end_leftovers


class Machine:
    """Environments by process id; a killed process goes, and leaves its child."""

    def __init__(self) -> None:
        self.processes: dict[int, bytes] = {}
        self.children: dict[int, int] = {}
        self.killed: list[int] = []

    def add(self, pid: int, mark: str, child: int | None = None) -> None:
        self.processes[pid] = f"\0PATH=/bin\0{MARK}={mark}\0".encode()
        if child is not None:
            self.children[pid] = child

    def kill(self, pid: int, number: int) -> None:
        assert number == signal.SIGKILL
        self.killed.append(pid)
        if pid in self.children:
            self.processes[self.children.pop(pid)] = self.processes[pid]
        if self.processes.pop(pid, None) is None:
            raise ProcessLookupError


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(leftovers, "_pids", lambda: list(machine.processes))
    monkeypatch.setattr(leftovers, "_read_environment", lambda pid: machine.processes[pid])
    monkeypatch.setattr(os, "kill", machine.kill)
    return machine


def test_only_processes_with_the_mark_are_killed(machine: Machine) -> None:
    machine.add(10, "abc")
    machine.add(11, "abcd")
    machine.add(12, "xabc")
    end_leftovers("abc")
    assert machine.killed == [10]


def test_what_forks_meanwhile_is_found_in_the_next_round(machine: Machine) -> None:
    machine.add(10, "abc", child=11)
    end_leftovers("abc")
    assert machine.killed == [10, 11]


def test_rounds_have_a_bound(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.add(10, "abc")
    monkeypatch.setattr(os, "kill", lambda pid, _: machine.killed.append(pid))
    end_leftovers("abc")
    assert machine.killed == [10] * leftovers._MAX_ROUNDS


def test_a_process_that_is_gone_has_no_environment() -> None:
    assert leftovers._read_environment(2**30) == b""
    assert leftovers._read_environment(os.getpid()).startswith(b"\0")
    assert os.getpid() in leftovers._pids()
