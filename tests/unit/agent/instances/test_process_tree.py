import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from sagehen.agent.instances.process_tree import (
    EXACT_SECONDS,
    TreeMemory,
    machine_memory_bytes,
    open_connections,
    tree_memory_bytes,
)

BLOCK = "data = bytearray(b'x') * (50 << 20); print('ready', flush=True); input()"
GROWING = f"""
import subprocess, sys

def block():
    kept.append(bytearray(b"x") * (50 << 20))
    print("ready", flush=True)

def child():
    kept.append(subprocess.Popen([sys.executable, "-c", {BLOCK!r}], stdin=subprocess.PIPE))

kept = []
print("ready", flush=True)
for line in sys.stdin:
    globals()[line.strip()]()
"""

Grow = Callable[[str], int]


@pytest.fixture
def grow() -> Iterator[Grow]:
    """`grow(what)`: has a process get a `block` of 50 MiB, or a `child` with one; its id. Below the
    tests' own process others come and go, such as the servers that tests share."""
    with subprocess.Popen(
        [sys.executable, "-c", GROWING], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"

        def grown(what: str) -> int:
            if what:
                process.stdin.write(what.encode() + b"\n")
                process.stdin.flush()
                assert process.stdout.readline() == b"ready\n"
            return process.pid

        yield grown
        process.communicate()


def test_memory_of_descendants_counts(grow: Grow) -> None:
    pid = grow("child")
    assert 50 * 2**20 < tree_memory_bytes(pid) < machine_memory_bytes()
    assert tree_memory_bytes(os.getpid()) > 50 * 2**20


def test_what_has_ended_has_no_memory() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert tree_memory_bytes(process.pid) == 0


def test_what_is_read_often_is_as_much(grow: Grow) -> None:
    pid, now = grow(""), 0.0
    memory = TreeMemory(pid, lambda: now)
    exact = memory.read()
    assert abs(exact - tree_memory_bytes(pid)) < 10 * 2**20
    grow("block")
    assert 40 * 2**20 < memory.read() - exact < 60 * 2**20, "between two exact readings"
    now = EXACT_SECONDS
    assert 40 * 2**20 < memory.read() - exact < 60 * 2**20


def test_a_process_that_was_started_meanwhile_counts_at_once(grow: Grow) -> None:
    memory = TreeMemory(grow(""), lambda: 0.0)
    before = memory.read()
    grow("child")
    assert 40 * 2**20 < memory.read() - before < 100 * 2**20


def test_open_connections_are_those_to_the_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert open_connections(os.getpid(), port) == 0
        with socket.create_connection(("127.0.0.1", port)), listener.accept()[0]:
            assert open_connections(os.getpid(), port) == 1
    assert open_connections(2**22 + 1, port) == 0
