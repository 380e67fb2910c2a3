import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from sagehen.modelserver.batching import Batcher
from sagehen.modelserver.contract import Answer, Refusal, Request


class Ticks:
    """A clock on which each look takes `step` seconds."""

    def __init__(self, step: float) -> None:
        self.step = step
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        self.time += self.step
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


@dataclass
class Words:
    count: int
    text: str


class Upper:
    """Answers a body in capitals; a row is a word. Notes what it was given together."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def decode(self, body: bytes, content_type: str) -> Words:
        if not body:
            raise Refusal(415, "nothing")
        return Words(len(body.split()), body.decode())

    def predict(self, batch: Sequence[Words]) -> list[str]:
        self.calls.append([words.text for words in batch])
        if any("bad" in words.text for words in batch):
            raise ValueError("a bad row")
        return [words.text.upper() for words in batch]

    def encode(self, prediction: str, accept: str) -> Answer:
        return Answer(200, prediction.encode())

    def close(self) -> None: ...


@pytest.fixture
def executor():
    with ThreadPoolExecutor(1) as pool:
        yield pool


def request(body: str, done: list[Request] | None = None) -> Request:
    return Request("POST", "/", {}, body.encode(), (done if done is not None else []).append)


async def answers(batcher: Batcher, *bodies: str) -> list[Answer | None]:
    requests = [request(body) for body in bodies]
    for each in requests:
        batcher.submit(each)
    await batcher.drained()
    return [each.answer for each in requests]


@pytest.mark.parametrize("step", [0.0, 1.0], ids=["quick, inline", "slow, in a thread"])
async def test_what_is_ready_together_is_predicted_in_one_call(executor, step):
    model = Upper()
    batcher = Batcher(model, executor, 10, clock=Ticks(step))
    await answers(batcher, "first")
    got = await answers(batcher, "a", "b", "c")
    assert model.calls == [["first"], ["a", "b", "c"]]
    assert got == [Answer(200, b"A"), Answer(200, b"B"), Answer(200, b"C")]


async def test_one_bad_row_fails_its_own_request_only(executor):
    got = await answers(Batcher(Upper(), executor, 10), "a", "bad", "", "d")
    assert [answer and answer.status for answer in got] == [200, 500, 415, 200]
    assert b"a bad row" in got[1].body
    assert got[3] == Answer(200, b"D")


async def test_batches_split_at_the_row_limit_and_keep_their_order(executor):
    model = Upper()
    got = await answers(
        Batcher(model, executor, 10, max_rows=3), "a b", "c", "d e", "1 2 3 4 5", "f"
    )
    assert model.calls == [["a b", "c"], ["d e"], ["1 2 3 4 5"], ["f"]]
    assert [answer and answer.body for answer in got] == [b"A B", b"C", b"D E", b"1 2 3 4 5", b"F"]


async def test_what_arrives_during_a_call_forms_the_next_batch(executor):
    model = Upper()
    batcher = Batcher(model, executor, 10, clock=Ticks(1.0))
    first, done = request("first"), asyncio.Event()
    batcher.submit(first)
    asyncio.get_running_loop().call_soon(done.set)
    await done.wait()  # the first is in its thread now
    assert await answers(batcher, "a", "b") == [Answer(200, b"A"), Answer(200, b"B")]
    assert model.calls == [["first"], ["a", "b"]]


async def test_a_full_queue_refuses_at_once(executor):
    got = await answers(Batcher(Upper(), executor, 2), "a", "b", "c")
    assert [answer and answer.status for answer in got] == [200, 200, 503]


async def test_nobody_waits_for_an_abandoned_request(executor):
    model = Upper()
    batcher = Batcher(model, executor, 10)
    gone = request("gone")
    gone.abandoned = True
    batcher.submit(gone)
    assert await answers(batcher, "a") == [Answer(200, b"A")]
    assert model.calls == [["a"]]
    assert gone.answer is not None


class UpperByHeader(Upper):
    """Takes the words from a header."""

    def decode_request(self, request: Request) -> Words:
        return Words(1, request.header(b"word"))


async def test_a_model_may_read_the_whole_request(executor):
    batcher = Batcher(UpperByHeader(), executor, 10)
    asked = Request("POST", "/", {b"word": b"hen"}, b"", lambda _: None)
    batcher.submit(asked)
    await batcher.drained()
    assert asked.answer == Answer(200, b"HEN")
