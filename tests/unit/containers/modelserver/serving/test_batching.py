import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.containers.modelserver.contract import ModelAnswer, ModelRequest, Refusal
from sagehen.containers.modelserver.serving.batch_limits import BatchLimits
from sagehen.containers.modelserver.serving.batching import Batcher


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

    def encode(self, prediction: str, accept: str) -> ModelAnswer:
        return ModelAnswer(200, prediction.encode())

    def close(self) -> None: ...


@pytest.fixture
def executor():
    with ThreadPoolExecutor(1) as pool:
        yield pool


def request(body: str, done: list[ModelRequest] | None = None) -> ModelRequest:
    return ModelRequest("POST", "/", {}, body.encode(), (done if done is not None else []).append)


async def answers(batcher: Batcher, *bodies: str) -> list[ModelAnswer | None]:
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
    assert got == [ModelAnswer(200, b"A"), ModelAnswer(200, b"B"), ModelAnswer(200, b"C")]


async def test_one_bad_row_fails_its_own_request_only(executor):
    got = await answers(Batcher(Upper(), executor, 10), "a", "bad", "", "d")
    assert [answer and answer.status for answer in got] == [200, 500, 415, 200]
    assert b"a bad row" in got[1].body
    assert got[3] == ModelAnswer(200, b"D")


async def test_batches_split_at_the_row_limit_and_keep_their_order(executor):
    model = Upper()
    got = await answers(
        Batcher(model, executor, 10, limits=BatchLimits(max_rows=3)),
        "a b",
        "c",
        "d e",
        "1 2 3 4 5",
        "f",
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
    assert await answers(batcher, "a", "b") == [ModelAnswer(200, b"A"), ModelAnswer(200, b"B")]
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
    assert await answers(batcher, "a") == [ModelAnswer(200, b"A")]
    assert model.calls == [["a"]]
    assert gone.answer is not None


class UpperByHeader(Upper):
    """Takes the words from a header."""

    def decode_request(self, request: ModelRequest) -> Words:
        return Words(1, request.header(b"word"))


async def test_a_model_may_read_the_whole_request(executor):
    batcher = Batcher(UpperByHeader(), executor, 10)
    asked = ModelRequest("POST", "/", {b"word": b"hen"}, b"", lambda _: None)
    batcher.submit(asked)
    await batcher.drained()
    assert asked.answer == ModelAnswer(200, b"HEN")


class SkippingLoop(asyncio.SelectorEventLoop):
    """Its time stands still while there is something to do, and else jumps to the next timer."""

    def __init__(self):
        super().__init__()
        self._seconds = 0.0
        selector = vars(self)["_selector"]
        wait = selector.select
        selector.select = lambda timeout=None: self._skip(wait, timeout)

    def _skip(self, wait, timeout):
        self._seconds += timeout or 0.0
        return wait(0)

    def time(self):
        return self._seconds

    # As a clock for the batcher.
    monotonic = time


class Inline(Executor):
    """Runs what it is given at once: nothing then depends on when a thread runs."""

    def submit(self, function, /, *arguments):
        done = Future()
        done.set_result(function(*arguments))
        return done


def in_skipped_time(play):
    """Runs `play(loop)` where waiting takes no time."""
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(play(runner.get_loop()))


def delayed(loop, model, max_rows=4, delay_seconds=1.0):
    limits = BatchLimits(max_rows=max_rows, max_bytes=1 << 30, delay_seconds=delay_seconds)
    return Batcher(model, Inline(), 1000, limits, clock=loop)


async def at_times(loop, batcher, *arrivals):
    """The answers to (second, body), and when each came."""
    came, made, all_sent = {}, {}, asyncio.Event()

    def submit(number, body):
        sent = ModelRequest(
            "POST", "/", {}, body.encode(), lambda _: came.update({number: loop.time()})
        )
        made[number] = sent
        batcher.submit(sent)
        if len(made) == len(arrivals):
            all_sent.set()

    for number, (second, body) in enumerate(arrivals):
        loop.call_at(second, submit, number, body)
    await all_sent.wait()
    await batcher.drained()
    numbers = range(len(arrivals))
    return [made[number].answer for number in numbers], [came[number] for number in numbers]


@pytest.mark.parametrize(
    ("arrivals", "calls", "times"),
    [
        pytest.param([(0, "a")], [["a"]], [1.0], id="a lone one waits the whole delay"),
        pytest.param(
            [(0, "a"), (0.5, "b"), (1.5, "c")],
            [["a", "b"], ["c"]],
            [1.0, 1.0, 2.5],
            id="the delay counts from the first",
        ),
        pytest.param(
            [(0, "a"), (0.1, "b"), (0.2, "c"), (0.3, "d"), (0.4, "e")],
            [["a", "b", "c", "d"], ["e"]],
            [0.3, 0.3, 0.3, 0.3, 1.4],
            id="a full batch does not wait",
        ),
        pytest.param(
            [(0, "a a"), (0.25, "b b b")],
            [["a a"], ["b b b"]],
            [0.25, 1.25],
            id="what is full is counted in rows",
        ),
        pytest.param(
            [(0, "1 2 3 4 5")], [["1 2 3 4 5"]], [0.0], id="one that fills it goes at once"
        ),
        pytest.param(
            [(0, ""), (0.5, "b")],
            [["b"]],
            [1.0, 1.0],
            id="what is refused fills nothing",
        ),
    ],
)
def test_a_delay_gathers(arrivals, calls, times):
    model = Upper()

    async def play(loop):
        return await at_times(loop, delayed(loop, model), *arrivals)

    got, came = in_skipped_time(play)
    assert model.calls == calls
    assert came == pytest.approx(times)
    wanted = [(200, body.upper().encode()) if body else (415, b"nothing") for _, body in arrivals]
    assert [(answer.status, answer.body) for answer in got] == wanted


def test_a_large_body_is_not_decoded_while_a_batch_gathers_until_that_is_known_to_be_quick():
    model, large = Upper(), "x" * 20_000

    async def play(loop):
        batcher = delayed(loop, model)
        return await at_times(loop, batcher, (0, large), (2, large))

    # The loop's time stands still in between: decoding takes none.
    assert in_skipped_time(play)[1] == pytest.approx([0.0, 3.0])


def test_with_batching_off_each_is_predicted_and_answered_by_itself(executor):
    model = Upper()

    async def play():
        batcher = Batcher(model, executor, 1000, BatchLimits(max_rows=1))
        assert batcher.slots == 2
        return await answers(batcher, "a", "b", "c d")

    got = asyncio.run(play())
    assert model.calls == [["a"], ["b"], ["c d"]]
    assert [answer.body for answer in got] == [b"A", b"B", b"C D"]


async def test_one_batch_is_answered_before_the_next_is_predicted(executor):
    model, answered = Upper(), []
    predict = model.predict
    model.predict = lambda batch: (answered.append(len(done)), predict(batch))[1]
    batcher, done = Batcher(model, executor, 10, BatchLimits(max_rows=3)), []
    for body in ("a b", "c d", "e f"):
        batcher.submit(request(body, done))
    await batcher.drained()
    assert answered == [0, 1, 2]


@given(
    arrivals=st.lists(
        st.tuples(
            st.integers(0, 30),
            st.lists(st.sampled_from(["w", "x", "bad"]), max_size=4).map(" ".join),
        ),
        min_size=1,
        max_size=12,
    ),
    max_rows=st.integers(1, 6),
    delay=st.sampled_from([0.0, 0.5]),
)
@settings(deadline=None, max_examples=60)
def test_every_answer_goes_to_its_request_and_in_time(arrivals, max_rows, delay):
    model = Upper()
    arrivals = [
        (tenths / 10, f"{number} {words}" if words else "")
        for number, (tenths, words) in enumerate(arrivals)
    ]

    async def play(loop):
        return await at_times(loop, delayed(loop, model, max_rows, delay), *arrivals)

    got, came = in_skipped_time(play)
    for (second, body), answer, at in zip(arrivals, got, came, strict=True):
        wanted = 415 if not body else 500 if "bad" in body else 200
        assert answer.status == wanted
        if wanted == 200:
            assert answer.body == body.upper().encode()
        assert second - 1e-6 <= at <= second + delay + 1e-6
    for call in model.calls:
        assert len(call) == 1 or sum(len(text.split()) for text in call) <= max_rows


class Forgetful(Upper):
    """Breaks its contract: of two words it predicts one."""

    def predict(self, batch):
        return super().predict(batch)[:1]


@pytest.mark.parametrize("step", [0.0, 1.0], ids=["quick, inline", "slow, in a thread"])
async def test_a_model_that_breaks_its_contract_is_an_error_and_holds_up_nobody(executor, step):
    batcher = Batcher(Forgetful(), executor, 10, clock=Ticks(step))
    async with asyncio.timeout(120):
        assert await answers(batcher, "a") == [ModelAnswer(200, b"A")]
        got = await answers(batcher, "a", "b")
        assert [answer and answer.status for answer in got] == [500, 500]
        assert await answers(batcher, "c") == [ModelAnswer(200, b"C")]


class Overlapping(Upper):
    """Predicts only once the last body is decoded."""

    def __init__(self, last: str) -> None:
        super().__init__()
        self.last = last
        self.is_decoded = threading.Event()
        self.threads: list[str] = []

    def decode(self, body: bytes, content_type: str) -> Words:
        self.threads.append(threading.current_thread().name)
        try:
            return super().decode(body, content_type)
        finally:
            if body.decode() == self.last:
                self.is_decoded.set()

    def predict(self, batch: Sequence[Words]) -> list[str]:
        assert self.is_decoded.wait(60)
        return super().predict(batch)


LARGE = ["a " * 10_000, "b " * 10_000]
ALONE = BatchLimits(max_rows=1)


@pytest.mark.parametrize("is_late", [False, True], ids=["with the first", "during its prediction"])
async def test_the_next_large_body_is_decoded_during_a_prediction(executor, is_late):
    model = Overlapping(LARGE[1])
    with ThreadPoolExecutor(1, "decoder") as decoder:
        batcher = Batcher(model, executor, 10, ALONE, Ticks(1.0), decoder)
        first, second = map(request, LARGE)
        batcher.submit(first)
        if is_late:
            async with asyncio.timeout(60):
                while not model.threads:  # noqa: ASYNC110
                    await asyncio.sleep(0)
        batcher.submit(second)
        await batcher.drained()
    assert [each.answer.body.decode() for each in (first, second)] == [
        text.upper() for text in LARGE
    ]
    assert ["decoder" in name for name in model.threads] == [False, True]


async def test_a_body_that_is_refused_ahead_is_answered_in_its_turn(executor):
    def refuse(body: bytes, content_type: str) -> Words:
        if body.startswith(b"b"):
            raise Refusal(415, "no words")
        return decode(body, content_type)

    model = Upper()
    decode, model.decode = model.decode, refuse
    with ThreadPoolExecutor(1) as decoder:
        got = await answers(Batcher(model, executor, 10, ALONE, Ticks(1.0), decoder), *LARGE)
    assert [answer and answer.status for answer in got] == [200, 415]


class NeverIdle(Executor):
    """Its thread is busy with something else."""

    def __init__(self) -> None:
        self.futures: list[Future[None]] = []

    def submit(self, function, /, *arguments):
        self.futures.append(Future())
        return self.futures[-1]


async def test_nobody_waits_for_a_thread_that_decodes_other_bodies(executor):
    decoder = NeverIdle()
    async with asyncio.timeout(60):
        got = await answers(Batcher(Upper(), executor, 10, ALONE, Ticks(1.0), decoder), *LARGE)
    assert [answer and answer.status for answer in got] == [200, 200]
    assert [future.cancelled() for future in decoder.futures] == [True]


async def test_small_bodies_are_not_decoded_ahead(executor):
    decoder = NeverIdle()
    await answers(Batcher(Upper(), executor, 10, ALONE, Ticks(1.0), decoder), "a", "b")
    assert not decoder.futures
