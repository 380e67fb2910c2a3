"""Who waits for another version of a list."""

import asyncio

import pytest

from sagehen.agent import changes as module
from sagehen.agent.changes import Changes
from support.clock import HandClock


async def waiting(changes: Changes) -> asyncio.Task[None]:
    task = asyncio.create_task(changes.wait(changes.version, 20))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def test_what_is_announced_is_told_at_once() -> None:
    changes = Changes(HandClock())
    task = await waiting(changes)
    version = changes.version
    changes.announce()
    await task
    assert changes.version == version + 1


async def test_what_nobody_waits_for_is_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COALESCE_SECONDS", 0.001)
    changes = Changes(HandClock())
    task = await waiting(changes)
    version = changes.version
    for _ in range(3):
        changes.announce_soon()
    assert changes.version == version
    await asyncio.wait_for(task, 60)
    assert changes.version == version + 1


async def test_and_with_what_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COALESCE_SECONDS", 0.001)
    changes = Changes(HandClock())
    version = changes.version
    changes.announce_soon()
    changes.announce()
    again = await waiting(changes)
    await asyncio.sleep(0.01)
    assert changes.version == version + 1
    assert not again.done()
    changes.close()
    await again
    changes.announce_soon()
    assert changes.version == version + 2
