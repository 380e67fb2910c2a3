"""The memory of what was unloaded is given back, and not too often."""

import asyncio
import subprocess
import sys
import threading

import pytest

from sagehen.containers.modelserver.serving import container_contract
from sagehen.containers.modelserver.serving.container_contract import Trimmer


async def test_memory_is_trimmed_once_for_all_who_ask_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trims: list[threading.Thread] = []
    trimmed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def trim() -> None:
        trims.append(threading.current_thread())
        loop.call_soon_threadsafe(trimmed.set)

    monkeypatch.setattr(container_contract, "trim", trim)
    asked = Trimmer(seconds=0)
    for _ in range(3):
        asked.ask()
    await trimmed.wait()
    assert len(trims) == 1
    assert trims[0] is not threading.main_thread(), "it takes milliseconds"
    trimmed.clear()
    asked.ask()
    await trimmed.wait()
    assert len(trims) == 2


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
