"""Which walls are found to hold on this machine."""

import logging
import os
from pathlib import Path

import pytest

from sagehen.agent.launchers import wall_probe
from sagehen.agent.launchers.orphans import Orphans
from sagehen.agent.launchers.spawn import StepError
from sagehen.agent.launchers.wall_probe import find_walls
from sagehen.agent.launchers.walls import NO_WALLS, OPT_ML, Wall
from support.mounts import may_mount

ALL = frozenset(Wall)


@may_mount
async def test_they_are_tried_and_leave_nothing(tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    assert await find_walls(ALL, tmp_path, Orphans()) == {}
    assert os.listdir(tmp_path) == []
    assert caplog.text == ""


@may_mount
async def test_each_is_tried_only_if_desired(tmp_path: Path, monkeypatch) -> None:
    assert await find_walls(NO_WALLS, tmp_path, Orphans()) == {}
    assert await find_walls(frozenset({Wall.FILES}), tmp_path, Orphans()) == {}


@pytest.mark.parametrize(
    ("refused", "missing"),
    [
        ({"overlay"}, {Wall.ETC}),
        ({"processes"}, {Wall.PROCESSES}),
        ({"overlay", "processes"}, {Wall.ETC, Wall.PROCESSES}),
        ({"mount"}, set(Wall)),
    ],
)
async def test_one_that_the_kernel_refuses_takes_none_of_the_others_along(
    tmp_path: Path, monkeypatch, refused: set[str], missing: set[Wall]
) -> None:
    steps = {"overlay": Wall.ETC, "processes": Wall.PROCESSES}

    async def spawn(*_: object, walls: frozenset[Wall], **__: object) -> object:
        for step in refused:
            if steps.get(step, Wall.FILES) in walls:
                raise StepError(1, "Operation not permitted", step)
        return Ended()

    monkeypatch.setattr(wall_probe, "spawn", spawn)
    assert (await find_walls(ALL, tmp_path, Orphans())).keys() == missing


@pytest.mark.parametrize(("statuses", "missing"), [([-9, 0], set()), ([1, 1, 0], {Wall.PROCESSES})])
async def test_a_check_that_ends_is_tried_again_once(
    tmp_path: Path, monkeypatch, statuses: list[int], missing: set[Wall]
) -> None:
    async def spawn(*_: object, **__: object) -> object:
        return Ended(statuses.pop(0))

    monkeypatch.setattr(wall_probe, "spawn", spawn)
    found = await find_walls(ALL, tmp_path, Orphans())
    assert (found.keys(), statuses) == (missing, [])
    assert all(reason.endswith("ended with status 1") for reason in found.values())


class Ended:
    def __init__(self, status: int = 0) -> None:
        self._status = status

    def wait(self) -> int:
        return self._status

    def kill_all(self) -> None:
        pass

    def wait_for_init(self) -> None:
        pass


async def test_what_the_kernel_refuses_is_one_line_in_the_log(
    tmp_path: Path, caplog, monkeypatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise StepError(1, "Operation not permitted (mounting its /opt/ml)", "mount")

    caplog.set_level(logging.INFO)
    monkeypatch.setattr(wall_probe, "spawn", refuse)
    assert (await find_walls(ALL, tmp_path, Orphans())).keys() == ALL
    (message,) = caplog.messages
    reason = "(Operation not permitted (mounting its /opt/ml)): containers"
    assert message.startswith(f"Walls around containers are missing: files {reason} share /tmp")
    assert f"; etc {reason} share /etc; processes {reason} see" in message


async def test_a_home_that_would_be_hidden_has_none() -> None:
    missing = await find_walls(ALL, OPT_ML / "sagehen", Orphans())
    assert missing.keys() == ALL
    assert "/opt/ml/sagehen would be hidden" in missing[Wall.FILES]
