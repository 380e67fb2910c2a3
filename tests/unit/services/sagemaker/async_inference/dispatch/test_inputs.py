"""Inputs of requests: inline, small ones read with the lease, and objects in pieces."""

from collections.abc import Iterator

import pytest

from sagehen.base.concurrency import Threads
from sagehen.base.errors import Unavailable
from sagehen.services.sagemaker.async_inference.dispatch.failures import AsyncFailure
from sagehen.services.sagemaker.async_inference.dispatch.inputs import (
    MAX_SMALL_BYTES,
    Input,
    Inputs,
    SmallInput,
)
from support.clock import HandClock


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads(1, "test")
    yield threads
    threads.close()


@pytest.fixture
def inputs(bench, threads: Threads) -> Inputs:
    return Inputs(bench.database, bench.objects, threads, bench.clock, 2 * MAX_SMALL_BYTES)


async def content(opened: Input) -> bytes:
    data = b"".join([piece async for piece in opened.chunks()])
    opened.close()
    return data


async def test_an_inline_body_is_whole(bench, inputs: Inputs) -> None:
    opened = await inputs.open(bench.get(bench.enqueue(b"a,b")))
    assert (opened.whole, opened.size) == (b"a,b", 3)
    assert await content(opened) == b"a,b"


async def test_an_object_has_its_content_type(bench, inputs: Inputs) -> None:
    url = bench.put("in.csv", b"1" * 20_000, content_type="text/csv")
    opened = await inputs.open(bench.get(bench.enqueue(input_location=url)))
    assert (opened.size, opened.content_type) == (20_000, "text/csv")
    assert await content(opened) == b"1" * 20_000


@pytest.mark.parametrize("url", ["s3://ins/gone", "s3://none/x"])
async def test_a_missing_object_fails_the_request(bench, inputs: Inputs, url: str) -> None:
    queued = bench.get(bench.enqueue(input_location=url))
    with pytest.raises(AsyncFailure, match=f"The input at {url} could not be read"):
        await inputs.open(queued)


async def test_an_object_that_is_too_large_fails_the_request(bench, inputs: Inputs) -> None:
    url = bench.put("large", b"1" * (2 * MAX_SMALL_BYTES + 1))
    with pytest.raises(AsyncFailure, match="max_async_input_bytes"):
        await inputs.open(bench.get(bench.enqueue(input_location=url)))


async def test_small_inputs_are_read_with_the_lease(bench, inputs: Inputs) -> None:
    small = bench.put("small", b"1", content_type="text/csv")
    large = bench.put("large", b"1" * (MAX_SMALL_BYTES + 1))
    requests = [
        bench.get(bench.enqueue(b"inline")),
        bench.get(bench.enqueue(b"1" * (MAX_SMALL_BYTES + 1))),
        bench.get(bench.enqueue(input_location=small)),
        bench.get(bench.enqueue(input_location=large)),
        bench.get(bench.enqueue(input_location="s3://ins/gone")),
    ]
    with bench.database.read() as connection:
        found = inputs.read_small(connection, requests)
    assert found == {
        requests[0].sequence: SmallInput(b"inline"),
        requests[2].sequence: SmallInput(b"1", "text/csv"),
    }
    opened = await inputs.open(requests[2], found[requests[2].sequence])
    assert (opened.whole, opened.content_type) == (b"1", "text/csv")


async def test_an_object_that_ends_early_is_broken(threads: Threads) -> None:
    opened = Input(threads, HandClock(), 10, b"first", 0)
    opened.then(iter([b"2"]), lambda: None)
    with pytest.raises(Unavailable, match="ended before its size"):
        await content(opened)
    assert isinstance(opened.broken, Unavailable)
