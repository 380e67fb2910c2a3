"""The memory of unloaded models goes back to the system."""

import subprocess
import sys


def test_the_allocator_gives_back_what_lies_below_what_is_in_use() -> None:
    program = """
import psutil
from sagehen.containers.modelserver.serving import malloc_trim
blocks = [bytearray(4096) for _ in range(25_000)]
kept = bytearray(4096)  # above them: without being asked, the allocator gives back nothing
full = psutil.Process().memory_info().rss
del blocks
malloc_trim.give_memory_back()
print(full - psutil.Process().memory_info().rss)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, timeout=60
    )
    assert int(done.stdout) > 80 * 2**20
