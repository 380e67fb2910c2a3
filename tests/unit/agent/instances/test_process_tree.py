import os
import subprocess
import sys

from sagehen.agent.instances.process_tree import (
    EXACT_SECONDS,
    TreeMemory,
    machine_memory_bytes,
    tree_memory_bytes,
)

BLOCK = "data = bytearray(b'x') * (50 << 20); print('ready', flush=True); input()"
TREE = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BLOCK!r}])"


def test_memory_of_descendants_counts() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TREE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert 50 * 2**20 < tree_memory_bytes(process.pid) < machine_memory_bytes()
        process.communicate(b"\n")
    assert tree_memory_bytes(process.pid) == 0
    assert tree_memory_bytes(os.getpid()) > 0


def test_what_is_read_often_is_as_much() -> None:
    now = 0.0
    memory = TreeMemory(os.getpid(), lambda: now)
    exact = memory.read()
    assert abs(exact - tree_memory_bytes(os.getpid())) < 10 * 2**20
    block = bytearray(b"x") * (50 << 20)
    assert 40 * 2**20 < memory.read() - exact < 60 * 2**20, "between two exact readings"
    now = EXACT_SECONDS
    assert 40 * 2**20 < memory.read() - exact < 60 * 2**20
    del block


def test_a_process_that_was_started_meanwhile_counts_at_once() -> None:
    memory = TreeMemory(os.getpid(), lambda: 0.0)
    before = memory.read()
    with subprocess.Popen(
        [sys.executable, "-c", BLOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert 40 * 2**20 < memory.read() - before < 100 * 2**20
        process.communicate(b"\n")
