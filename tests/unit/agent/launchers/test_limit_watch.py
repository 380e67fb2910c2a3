"""Looking at real processes, with a clock that does not wait."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest

from sagehen.agent.instances.limits import InstanceLimit, Limits
from sagehen.agent.launchers import limit_watch as module
from sagehen.agent.launchers.limit_watch import (
    GROWTH_BYTES_PER_SECOND,
    MAX_PAUSE_SECONDS,
    MIN_PAUSE_SECONDS,
    LimitWatch,
    UsageReading,
    choose_pause,
    measure,
)
from sagehen.base.clock import SYSTEM

FILL = """
import os, sys
data = bytearray(b"x") * (int(sys.argv[1]) << 20)
if all(os.fork() for _ in range(int(sys.argv[2]))):
    print("ready", flush=True)
sys.stdin.read()
"""
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(mebibytes, children)`: a process that holds so much, which its children share."""
    started: list[subprocess.Popen[bytes]] = []

    def run(mebibytes: int, children: int = 0) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", FILL, str(mebibytes), str(children)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield run
    for process in started:
        process.communicate()


def test_memory_that_processes_share_counts_once(start: Start) -> None:
    pid = start(60, 2).pid
    limits = Limits(memory_bytes=130 * 2**20)
    seen = measure([pid], limits)
    assert (seen.excess, seen.sizes[0] < 130 * 2**20) == (None, True)
    assert 0 < seen.headroom_bytes < 70 * 2**20
    assert measure([pid], Limits(memory_bytes=50 * 2**20)).excess is InstanceLimit.MEMORY


def test_processes_and_threads_are_counted(start: Start) -> None:
    pid = start(1, 2).pid
    assert measure([pid, pid], Limits(processes=5)).excess is InstanceLimit.PROCESSES
    near = measure([pid, pid], Limits(processes=6))
    assert (near.excess, choose_pause(near.headroom_bytes, 0)) == (None, MIN_PAUSE_SECONDS)
    far = measure([pid, pid], Limits(processes=12))
    assert choose_pause(far.headroom_bytes, 0) == MAX_PAUSE_SECONDS


def test_who_is_far_from_the_limit_is_looked_at_less_often() -> None:
    assert choose_pause(-1, 0) == MIN_PAUSE_SECONDS
    assert choose_pause(GROWTH_BYTES_PER_SECOND // 2, 0) == pytest.approx(0.5)
    assert choose_pause(2**50, 0) == MAX_PAUSE_SECONDS
    assert choose_pause(0, 0.2) > 3, "a look that takes long is not taken often"


class Container:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.pid = process.pid
        self.has_ended = False
        self.excess: InstanceLimit | None = None
        self.ended = asyncio.Event()

    def end_for(self, limit: InstanceLimit, limits: Limits) -> None:
        self.excess = limit
        self.has_ended = True
        self.ended.set()


async def test_the_largest_of_an_instance_is_ended_and_no_other(start: Start) -> None:
    small, large, other = Container(start(1)), Container(start(80)), Container(start(80))
    watch = LimitWatch(SYSTEM)
    limits = Limits(memory_bytes=85 * 2**20)
    watch.add("i-1", small, limits)
    watch.add("i-2", other, Limits(memory_bytes=2**40))
    watch.add("i-1", large, limits)
    await asyncio.wait_for(large.ended.wait(), 120)
    assert large.excess is InstanceLimit.MEMORY
    assert (small.excess, other.excess) == (None, None)
    small.has_ended = other.has_ended = True


def test_what_has_ended_has_no_size() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    seen = measure([process.pid], Limits(memory_bytes=0))
    assert (seen.excess, list(seen.sizes)) == (None, [0])


async def test_one_who_could_not_look_looks_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([RuntimeError("can't start new thread")])

    def look_later(pids: Sequence[int], limits: Limits) -> UsageReading:
        for error in looks:
            raise error
        return measure(pids, limits)

    monkeypatch.setattr(module, "measure", look_later)
    large = Container(start(40))
    LimitWatch(SYSTEM).add("i-1", large, Limits(memory_bytes=2**20))
    await asyncio.wait_for(large.ended.wait(), 120)
    assert large.excess is InstanceLimit.MEMORY
