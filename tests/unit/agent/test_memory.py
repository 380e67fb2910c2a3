import os
import subprocess
import sys

from sagehen.agent.memory import machine_memory_bytes, tree_memory_bytes

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
