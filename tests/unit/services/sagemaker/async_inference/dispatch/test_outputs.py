"""Answers on their way to the object store, and outputs of earlier attempts."""

from collections.abc import Iterator

import msgspec
import pytest

from sagehen.base.concurrency import Threads
from sagehen.base.retry import RetryPolicy
from sagehen.services.s3.storage.files import MOST_HELD_BYTES
from sagehen.services.s3.storage.records import Attributes
from sagehen.services.sagemaker.async_inference.dispatch.failures import AsyncFailure
from sagehen.services.sagemaker.async_inference.dispatch.outputs import OutputWriter, Spool
from sagehen.services.sagemaker.async_inference.records import (
    AsyncOutcome,
    AsyncState,
    QueuedRequest,
)
from support.clock import HandClock

LARGE = b"x" * (MOST_HELD_BYTES + 1)
FAILURE = AsyncOutcome(
    state=AsyncState.FAILED, failure_reason="ClientError: no", content_type="text/plain"
)


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads(1, "test")
    yield threads
    threads.close()


@pytest.fixture
def make_spool(bench, threads):
    def make(max_bytes: int = 10**6, prefix_bytes: int = 4) -> Spool:
        retry = RetryPolicy(HandClock(), 0)
        return Spool(bench.objects.draft, threads, retry, max_bytes, prefix_bytes)

    return make


@pytest.fixture
def outputs(bench, threads) -> OutputWriter:
    return OutputWriter(bench.objects, threads, max_body_bytes=8)


async def spooled(spool: Spool, *pieces: bytes) -> Spool:
    for piece in pieces:
        await spool.write(piece)
    await spool.end()
    return spool


async def test_a_small_answer_stays_in_memory(make_spool) -> None:
    spool = await spooled(make_spool(), b"ab", b"cd")
    assert (spool.size, spool.whole, spool.held, spool.beginning) == (4, b"abcd", b"abcd", b"abcd")


async def test_only_the_beginning_of_a_longer_answer_is_kept_for_its_notice(make_spool) -> None:
    spool = await spooled(make_spool(), b"abc", b"def")
    assert (spool.whole, spool.beginning, spool.held) == (None, b"abcd", b"abcdef")


async def test_a_large_answer_can_be_stored_by_several_tries(bench, make_spool) -> None:
    spool = await spooled(make_spool(), LARGE, b"end")
    assert spool.held is None
    for number in range(2):
        draft = spool.take_draft()
        bench.objects.put("outs", f"try-{number}", draft, Attributes(headers={}))
        draft.discard()
        assert bench.objects.head("outs", f"try-{number}").size == len(LARGE) + 3
    spool.discard()


async def test_an_answer_that_is_too_large_is_refused(make_spool) -> None:
    with pytest.raises(AsyncFailure, match="more than 3 bytes"):
        await make_spool(max_bytes=3).write(b"abcd")


def located(queued: QueuedRequest, outcome: AsyncOutcome) -> AsyncOutcome:
    output = queued.request.output
    succeeded = outcome.state is AsyncState.SUCCEEDED
    where = output.location if succeeded else output.failure_location
    return msgspec.structs.replace(outcome, location=where)


async def test_the_output_of_an_earlier_attempt_is_found(bench, outputs, make_spool) -> None:
    queued = bench.get(bench.enqueue(b"1"))
    assert await outputs.find(queued) is None
    outcome = located(
        queued, AsyncOutcome(state=AsyncState.SUCCEEDED, content_type="text/csv", status=200)
    )
    await outputs.put(queued, outcome, await spooled(make_spool(), b"answer"))
    found = await outputs.find(queued)
    assert (found.outcome, found.body) == (outcome, b"answer")
    other = bench.get(bench.enqueue(b"2", output=queued.request.output))
    assert await outputs.find(other) is None, "another request's object at the same address"


async def test_a_failure_object_tells_the_outcome(bench, outputs, make_spool) -> None:
    queued = bench.get(bench.enqueue(b"1"))
    outcome = located(queued, FAILURE)
    await outputs.put(queued, outcome, await spooled(make_spool(), b"too long for a notice"))
    found = await outputs.find(queued)
    assert (found.outcome, found.body) == (outcome, None)


async def test_a_failure_object_from_before_a_redrive_is_deleted(
    bench, outputs, make_spool
) -> None:
    queued = bench.get(bench.enqueue(b"1"))
    await outputs.put(queued, located(queued, FAILURE), await spooled(make_spool(), b"no"))
    again = msgspec.structs.replace(queued, redrives=1)
    assert await outputs.find(again) is None
    assert await outputs.find(queued) is None


async def test_only_small_answers_are_rows(bench, outputs, make_spool) -> None:
    queued = bench.get(bench.enqueue(b"1"))
    outcome = located(queued, AsyncOutcome(state=AsyncState.SUCCEEDED, content_type="text/csv"))
    small = outputs.small(queued, outcome, await spooled(make_spool(), b"1"))
    assert (small.bucket, small.data) == ("outs", b"1")
    assert small.attributes.headers == {"content-type": "text/csv"}
    large = await spooled(make_spool(), LARGE)
    assert outputs.small(queued, outcome, large) is None
    large.discard()
