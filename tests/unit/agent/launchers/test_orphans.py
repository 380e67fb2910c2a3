"""Which children of this process are orphans, without any process."""

import asyncio

import pytest

from sagehen.agent.launchers import orphans as module
from sagehen.agent.launchers.orphans import Orphans


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """This process's, of which killing takes them away."""
    children: set[int] = set()
    monkeypatch.setattr(module, "children", lambda _: sorted(children))
    monkeypatch.setattr(module, "end_trees", children.difference_update)
    monkeypatch.setattr(module, "_reap", lambda _: None)
    return children


async def test_before_it_adopts_every_child_is_somebodys(children: set[int]) -> None:
    children |= {10, 11}
    Orphans().end()
    assert children == {10, 11}


async def test_only_adopted_children_are_killed(
    children: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    orphans = Orphans()
    monkeypatch.setattr(orphans, "_adopts", True)
    children |= {10, 11, 12}
    for pid in (10, 11):
        orphans.expect(pid)
    orphans.forget(11)
    orphans.forget(99)
    orphans.end()
    assert children == {10}


async def test_children_that_are_adopted_meanwhile_are_killed_next(
    children: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()

    def end_trees(pids: list[int]) -> None:
        children.difference_update(pids)
        if 11 in pids:
            ended.set()

    monkeypatch.setattr(module, "end_trees", end_trees)
    monkeypatch.setattr(module, "RECHECK_SECONDS", 0)
    orphans = Orphans()
    monkeypatch.setattr(orphans, "_adopts", True)
    children.add(10)
    orphans.end()
    children.add(11)
    async with asyncio.timeout(120):
        await ended.wait()
    assert children == set()
