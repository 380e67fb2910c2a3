"""A later attempt finds what an earlier one has written; an earlier one's word does not count."""

import asyncio

from sagehen.base.errors import Unavailable
from sagehen.services.sagemaker.async_inference import (
    lease_store as async_leases,
)
from sagehen.services.sagemaker.async_inference import (
    request_store as async_requests,
)
from sagehen.services.sagemaker.async_inference.records import AsyncState, OutputTarget

LARGE = b"x" * 20_000
"""More than an object may have to be a row."""


async def test_an_answer_that_was_written_is_never_asked_for_again(bench, monkeypatch) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(LARGE)
    with monkeypatch.context() as patches:
        patches.setattr(async_leases, "finish_all", killed)
        await bench.work_once()
    assert bench.outputs() == ["0000.out"]
    assert bench.get(sequence).state is AsyncState.LEASED
    await bench.restart()
    await bench.work()
    ended = bench.get(sequence)
    assert (ended.state, ended.attempt, ended.reclaimed) == ("SUCCEEDED", 2, 1)
    assert ended.outcome.content_type == "text/csv"
    assert len(container.got) == 1


async def test_a_small_answer_is_there_with_its_end_or_not_at_all(bench, monkeypatch) -> None:
    container = await bench.container()
    bench.serve()
    sequences = [bench.enqueue(b"1"), bench.enqueue(b"2")]
    with monkeypatch.context() as patches:
        patches.setattr(async_leases, "finish_all", killed)
        await bench.work_once()
    assert bench.outputs() == []
    assert {bench.get(one).state for one in sequences} == {AsyncState.LEASED}
    await bench.restart()
    await bench.work()
    assert {bench.get(one).state for one in sequences} == {AsyncState.SUCCEEDED}
    assert [bench.object(name)[0] for name in bench.outputs()] == [b"11", b"22"]
    assert len(container.got) == 4


async def test_a_small_answer_takes_the_place_of_a_large_one(bench) -> None:
    await bench.container()
    bench.serve()
    output = OutputTarget(location="s3://outs/same.out")
    for body in (LARGE, b"1"):
        sequence = bench.enqueue(body, output=output)
        await bench.work()
        assert bench.get(sequence).state is AsyncState.SUCCEEDED
        assert bench.object("same.out")[0] == 2 * body
    files = [path for path in (bench.home.objects / "blobs").rglob("*") if path.is_file()]
    assert files == []


async def test_small_answers_that_nobody_can_keep_fail_alone(bench) -> None:
    await bench.container()
    bench.serve(slots=8)
    places = ["s3://outs/good", "s3://none/bad", "s3://outs/fine", "s3://none/worse"]
    ends = [bench.enqueue(b"1", output=OutputTarget(location=place)) for place in places]
    await bench.work()
    states = [bench.get(sequence).state.value for sequence in ends]
    assert states == ["SUCCEEDED", "FAILED"] * 2
    assert bench.outputs() == ["fine", "good"]
    assert "There is no bucket none" in bench.get(ends[1]).outcome.failure_reason


def killed(*_: object) -> bool:
    """Nothing that comes after it in the attempt happens."""
    raise KeyError("killed")


async def test_a_failure_that_was_written_is_found_too(bench, monkeypatch) -> None:
    await bench.container()
    bench.serve()
    sequence = bench.enqueue(input_location="s3://ins/later")
    with monkeypatch.context() as patches:
        patches.setattr(async_leases, "finish_all", killed)
        await bench.work_once()
    bench.put("later", b"1")
    await bench.restart()
    await bench.work()
    ended = bench.get(sequence)
    assert ended.state is AsyncState.FAILED
    assert "There is no object later" in ended.outcome.failure_reason
    assert bench.outputs() == ["0000-error.out"], "never both"


async def test_another_requests_object_is_no_answer(bench) -> None:
    """Two requests may ask for the same Filename."""
    container = await bench.container()
    bench.serve()
    output = OutputTarget(location="s3://outs/same.out")
    first = bench.enqueue(b"1", output=output)
    await bench.work()
    container.answer = container.hang_up
    second = bench.enqueue(b"2", output=output)
    await bench.work()
    container.answer = container.double
    bench.clock.seconds += 5
    await bench.work()
    assert bench.get(first).state is bench.get(second).state is AsyncState.SUCCEEDED
    assert bench.object("same.out")[0] == b"22"


async def test_a_redriven_request_leaves_no_failure_object(bench) -> None:
    await bench.container()
    bench.serve()
    sequence = bench.enqueue(input_location="s3://ins/later")
    await bench.work()
    assert bench.outputs() == ["0000-error.out"]
    bench.put("later", b"1")
    with bench.database.write() as connection:
        assert async_requests.redrive(connection, [sequence], bench.clock.now())
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED
    assert bench.outputs() == ["0000.out"]
    assert len({notice.message_id for notice in bench.notices}) == 2


async def test_what_an_older_attempt_says_does_not_count(bench) -> None:
    container = await bench.container()
    bench.serve()
    gate = container.hold(b"old")
    sequence = bench.enqueue(b"1")
    await bench.begun(container)
    # This process stood still for so long that its lease ran out.
    bench.clock.seconds += 31
    with bench.database.write() as connection:
        assert async_leases.reclaim(connection, bench.clock.now(), 10) == 1
    gate.set()
    await asyncio.wait(list(bench.dispatcher._tasks.values()))
    assert bench.outputs() == []
    assert bench.notices == []
    container.answer = container.double
    await bench.work()
    assert bench.object("0000.out")[0] == b"11"
    assert bench.get(sequence).attempt == 2


async def test_an_answer_that_was_written_although_that_failed_is_one(bench, monkeypatch) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(b"1")
    put = bench.objects.put

    def put_and_fail(*given):
        put(*given)
        raise Unavailable("The object store failed: away")

    monkeypatch.setattr(bench.objects, "put", put_and_fail)
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED
    assert bench.outputs() == ["0000.out"]
    assert len(container.got) == 1
