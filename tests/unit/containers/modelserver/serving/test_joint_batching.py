"""Requests for several models in one call, each model with its own bounds and its own end."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from sagehen.base.clock import SYSTEM
from sagehen.containers.modelserver.contract import ModelAnswer, ModelRequest
from sagehen.containers.modelserver.serving.batch_limits import NATURAL, BatchLimits
from sagehen.containers.modelserver.serving.batching import Batcher
from sagehen.containers.modelserver.serving.joint_batching import (
    MAX_JOINT_BYTES,
    JointBatching,
)
from unit.containers.modelserver.serving.test_batching import Ticks, Upper, Words, request


class Named(Upper):
    """A model that puts its name before what it answers."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def predict(self, batch: Sequence[Words]) -> list[str]:
        return [f"{self.name} {text}" for text in super().predict(batch)]


class Together:
    """Predicts for several, and notes which models it was given together."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def predict_jointly(self, batch: Sequence[tuple[Named, Words]]) -> list[str]:
        self.calls.append([model.name for model, _ in batch])
        if any("worse" in words.text for _, words in batch):
            raise ValueError("a bad row")
        return [f"{model.name} {words.text.upper()}" for model, words in batch]


class World:
    def __init__(self, executor, max_waiting=10, limits=NATURAL, clock=SYSTEM) -> None:
        self.together = Together()
        self.models = {name: Named(name) for name in "abc"}
        joint = JointBatching(self.together, executor, max_waiting, limits, clock)
        self.runners = {
            name: joint.runner(model, Batcher(model, executor, max_waiting, limits, clock))
            for name, model in self.models.items()
        }

    async def answers(self, *asked: tuple[str, str]) -> list[ModelAnswer | None]:
        requests = [(name, request(body)) for name, body in asked]
        for name, each in requests:
            self.runners[name].submit(each)
        for runner in self.runners.values():
            await runner.drained()
        return [each.answer for _, each in requests]


@pytest.fixture
def executor():
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.mark.parametrize("step", [0.0, 1.0], ids=["quick, inline", "slow, in a thread"])
async def test_what_is_ready_for_any_model_is_predicted_in_one_call(executor, step):
    world = World(executor, clock=Ticks(step))
    await world.answers(("a", "first"))
    got = await world.answers(("a", "x"), ("b", "y"), ("a", "z"))
    assert world.together.calls == [["a"], ["a", "b", "a"]]
    assert got == [ModelAnswer(200, b"a X"), ModelAnswer(200, b"b Y"), ModelAnswer(200, b"a Z")]


async def test_one_bad_row_fails_its_own_request_only(executor):
    got = await World(executor).answers(("a", "x"), ("b", "worse"), ("c", ""), ("a", "z"))
    assert [answer and answer.status for answer in got] == [200, 500, 415, 200]
    assert got[3] == ModelAnswer(200, b"a Z")


async def test_a_large_body_is_its_own_model_s(executor):
    world = World(executor)
    large = "w" * (MAX_JOINT_BYTES + 1)
    got = await world.answers(("a", large), ("b", "y"))
    assert got == [ModelAnswer(200, f"a {large.upper()}".encode()), ModelAnswer(200, b"b Y")]
    assert world.together.calls == [["b"]]
    assert world.models["a"].calls == [[large]]


async def test_each_model_has_its_own_bound(executor):
    world = World(executor, max_waiting=2)
    got = await world.answers(*[("a", "x")] * 3, ("b", "y"))
    assert [answer and answer.status for answer in got] == [200, 200, 503, 200]
    # And room again, once they are answered.
    assert (await world.answers(("a", "x")))[0] == ModelAnswer(200, b"a X")


async def test_the_limit_of_rows_holds_over_all_models(executor):
    world = World(executor, limits=BatchLimits(max_rows=2))
    await world.answers(("a", "x"), ("b", "y"), ("c", "z"))
    assert world.together.calls == [["a", "b"], ["c"]]


async def test_a_model_is_drained_when_its_own_requests_are_answered(executor):
    world = World(executor)
    asked = request("x")
    world.runners["a"].submit(asked)
    async with asyncio.timeout(120):
        await world.runners["b"].drained()
        assert asked.answer is None
        await world.runners["a"].drained()
    assert asked.answer == ModelAnswer(200, b"a X")


async def test_what_nobody_waits_for_is_not_predicted_and_leaves_its_place(executor):
    world = World(executor, max_waiting=1)
    gone: ModelRequest = request("x")
    world.runners["a"].submit(gone)
    gone.abandoned = True
    await world.runners["a"].drained()
    assert world.together.calls == []
    assert (await world.answers(("a", "y")))[0] == ModelAnswer(200, b"a Y")
