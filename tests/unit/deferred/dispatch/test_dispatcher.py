"""Requests on their way: each ends once, with one object and one notice, whatever happens."""

import asyncio
import errno
import json
import threading

import pytest
from aiohttp import web
from sqlalchemy.exc import OperationalError

from sagehen.deferred.dispatch import dispatcher
from sagehen.domain.asynchronous import AsyncState, Output, QueueMode
from sagehen.errors import Unavailable
from sagehen.objects import files
from sagehen.store import async_leases, async_requests
from sagehen.store.database import Database
from sagehen.store.grouped import GroupedWrites

LARGE = b"x" * 20_000
"""More than an object may have to be a row."""


async def test_a_request_is_answered(bench) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(
        input_location=bench.put("a.csv", b"1,2\n"), accept="text/csv", custom_attributes="c=1"
    )
    await bench.work()
    body, info = bench.object("0000.out")
    assert (body, info.attributes.headers) == (b"1,2\n1,2\n", {"content-type": "text/csv"})
    headers, got = container.got[0]
    assert got == b"1,2\n"
    assert headers == {
        "Host": "localhost",
        "Content-Type": "text/csv",
        "Accept": "text/csv",
        "X-Amzn-SageMaker-Custom-Attributes": "c=1",
        "X-Amzn-SageMaker-Inference-Id": "id 0000",
        "Content-Length": "4",
        "Connection": "close",
    }
    ended = bench.get(sequence)
    assert (ended.state, ended.attempt, ended.outcome.status) == ("SUCCEEDED", 1, 200)
    assert [notice.topic_arn for notice in bench.notices] == ["arn:ok"]
    assert bench.dispatcher.busy == frozenset()
    about = {"endpoint": "End", "variant": "v"}
    assert {name for name, dimensions, _ in bench.metrics if dimensions == about} == {
        "InvocationsProcesssed",
        "InvocationsProcessed",
        "Invocation4XXErrors",
        "Invocation5XXErrors",
        "ModelLatency",
        "RequestDownloadLatency",
        "ResponseUploadLatency",
        "TimeInBacklog",
        "TotalProcessingTime",
    }


@pytest.mark.parametrize(
    ("asked", "stored", "sent"),
    [
        (None, {"content_type": "text/libsvm"}, "text/libsvm"),
        ("text/csv", {"content_type": "text/libsvm"}, "text/csv"),
        (None, {}, None),
    ],
)
async def test_who_names_no_content_type_gets_the_objects(bench, asked, stored, sent) -> None:
    container = await bench.container()
    bench.serve()
    bench.enqueue(input_location=bench.put("a", b"1 1:2\n", **stored), content_type=asked)
    await bench.work()
    assert container.got[0][0].get("Content-Type") == sent


@pytest.mark.parametrize("body", [b"", b"inline\x00"])
async def test_an_inline_body(bench, body) -> None:
    container = await bench.container()
    bench.serve()
    bench.enqueue(body)
    await bench.work()
    assert container.got[0][1] == body
    assert container.got[0][0]["Content-Length"] == str(len(body))
    assert bench.outputs() == ["0000.out"]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, "ClientError: Received client error (400) from model. See the SageMaker Endpoint"),
        (500, "InternalServerError: Received server error (500) from model. See the"),
        (302, "InternalServerError: Received server error (302) from model. See the"),
    ],
)
async def test_an_error_of_the_container_is_final(bench, status, reason) -> None:
    container = await bench.container()
    bench.serve()

    async def fail(_: web.Request) -> web.Response:
        return web.Response(status=status, body=b"bad row", content_type="text/x")

    container.answer = fail
    sequence = bench.enqueue(b"1")
    await bench.work()
    ended = bench.get(sequence)
    assert (ended.state, ended.outcome.status) == ("FAILED", status)
    assert ended.outcome.failure_reason.startswith(reason)
    body, info = bench.object("0000-error.out")
    assert (body, info.attributes.headers["content-type"]) == (b"bad row", "text/x")
    assert bench.outputs() == ["0000-error.out"]
    assert len(container.got) == 1
    assert bench.counted("InvocationFailures") == [1]
    assert bench.counted("Invocation4XXErrors") == [float(400 <= status < 500)]
    told = bench.home.logs.rglob("data-log.log")
    (line,) = next(told).read_text().splitlines()
    assert line.endswith(
        f'[id 0000] Received {side(status)} error ({status}) from primary with message "bad row"'
    )


def side(status: int) -> str:
    return "client" if 400 <= status < 500 else "server"


async def test_what_http_cannot_carry_fails_at_once(bench) -> None:
    container = await bench.container()
    bench.serve()
    kind = {"content_type": "text/csv\x01"}
    sequences = [
        bench.enqueue(b"1", **kind),
        bench.enqueue(input_location=bench.put("a", b"1", **kind), content_type=None),
    ]
    await bench.work()
    for sequence in sequences:
        ended = bench.get(sequence)
        assert (ended.state, ended.attempt) == ("FAILED", 1)
        reason = "ClientError: The request cannot be sent to the container: Forbidden"
        assert ended.outcome.failure_reason.startswith(reason)
    assert container.got == []


async def test_without_a_failure_path_there_is_no_object(bench) -> None:
    await bench.container()
    bench.serve()
    output = Output(location="s3://outs/x.out", error_topic="arn:bad")
    bench.enqueue(input_location="s3://ins/missing", output=output)
    await bench.work()
    assert bench.outputs() == []
    assert json.loads(bench.notices[0].message)["invocationStatus"] == "Failed"


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("s3://ins/missing", "There is no object missing in ins"),
        ("s3://nowhere/x", "There is no bucket nowhere"),
        ("https://example.com/x", "is not the address of an object in S3"),
    ],
)
async def test_an_input_that_is_not_there(bench, location, said) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(input_location=location)
    await bench.work()
    reason = bench.get(sequence).outcome.failure_reason
    assert reason.startswith(f"ClientError: The input at {location} could not be read: ")
    assert said in reason
    assert container.got == []
    assert bench.counted("RequestDownloadFailures") == [1]
    assert bench.outputs() == ["0000-error.out"]


async def test_an_input_that_is_too_large(bench) -> None:
    await bench.container()
    bench.serve()
    bench.dispatcher._work.asker.inputs._most_bytes = 3
    sequence = bench.enqueue(input_location=bench.put("a", b"1234"))
    await bench.work()
    assert "has 4 bytes; at most 3" in bench.get(sequence).outcome.failure_reason


async def test_a_large_answer_is_streamed_and_kept(bench) -> None:
    container = await bench.container()
    bench.serve()

    async def stream(request: web.Request) -> web.StreamResponse:
        # Chunked: without a Content-Length, which SageMaker refuses.
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(9):
            await response.write(b"x" * 100_000)
        return response

    container.answer = stream
    bench.enqueue(b"1")
    await bench.work()
    body, _ = bench.object("0000.out")
    assert body == b"x" * 900_000
    drafts = list((bench.home.objects / "drafts").iterdir())
    assert drafts == []


async def test_an_answer_that_is_too_large(bench) -> None:
    container = await bench.container()
    bench.serve()

    async def stream(request: web.Request) -> web.Response:
        return web.Response(body=b"x" * 1_000_001)

    container.answer = stream
    sequence = bench.enqueue(b"1")
    await bench.work()
    assert "has more than 1000000 bytes" in bench.get(sequence).outcome.failure_reason
    assert bench.outputs() == ["0000-error.out"]
    assert list((bench.home.objects / "drafts").iterdir()) == []


async def test_a_container_that_takes_too_long(bench) -> None:
    container = await bench.container()
    bench.serve()
    broken_off = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        try:
            await asyncio.sleep(60)
        finally:
            broken_off.set()
        return web.Response()

    container.answer = hang
    sequence = bench.enqueue(b"1", timeout_seconds=0.05)
    await bench.work()
    ended = bench.get(sequence)
    assert ended.state is AsyncState.FAILED
    assert "Your invocation timed out" in ended.outcome.failure_reason
    assert bench.dispatcher.busy == frozenset()
    assert len(container.got) == 1
    assert bench.outputs() == ["0000-error.out"]


async def test_a_lost_instance_is_asked_again_so_often(bench) -> None:
    container = await bench.container()
    bench.serve()
    container.answer = container.hang_up
    sequence = bench.enqueue(b"1")
    for _ in range(5):
        await bench.work()
        bench.clock.seconds += 5
    ended = bench.get(sequence)
    assert (ended.state, ended.attempt, ended.lost) == ("FAILED", 3, 2)
    assert len(container.got) == 3
    body, _ = bench.object("0000-error.out")
    assert body == b"Connection reset by peer for the End endpoint. Please retry."


async def test_after_a_loss_it_is_answered_once(bench) -> None:
    container = await bench.container()
    bench.serve()
    container.answer = container.hang_up
    bench.enqueue(b"1")
    await bench.work()
    container.answer = container.double
    bench.clock.seconds += 5
    await bench.work()
    assert bench.outputs() == ["0000.out"]
    assert len(bench.notices) == 1


@pytest.mark.parametrize("how", ["away", "busy"])
async def test_what_did_not_begin_waits_and_is_not_counted(bench, how) -> None:
    container = await bench.container()
    bench.serve()

    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=503, headers={"x-sagehen-not-started": "1"})

    if how == "away":
        await container.stop()
    container.answer = refuse
    sequence = bench.enqueue(b"1")
    for _ in range(4):
        await bench.work()
        bench.clock.seconds += 5
    waiting = bench.get(sequence)
    assert (waiting.state, waiting.lost) == ("QUEUED", 0)
    assert waiting.attempt == 4, "not more often than the instance has rested"
    container.answer = container.double
    if how == "away":
        await container.start()
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED


async def test_no_more_at_once_than_there_are_slots(bench) -> None:
    first, second = await bench.container("i-1"), await bench.container("i-2")
    bench.serve(slots=2)
    gate = asyncio.Event()
    inside: list[int] = [0]

    async def wait(_: web.Request) -> web.Response:
        inside.append(inside[-1] + 1)
        await gate.wait()
        inside.append(inside[-1] - 1)
        return web.Response()

    first.answer = second.answer = wait
    sequences = [bench.enqueue(b"1") for _ in range(7)]
    await bench.begun(first, 2)
    await bench.begun(second, 2)
    assert [bench.get(one).state for one in sequences] == ["LEASED"] * 4 + ["QUEUED"] * 3
    assert bench.dispatcher.busy == {"i-1", "i-2"}
    gate.set()
    await bench.work()
    assert max(inside) == 4
    assert bench.outputs() == [f"{number:04}.out" for number in range(7)]


async def test_endpoints_take_turns(bench) -> None:
    bench.dispatcher._most = 4
    container = await bench.container()
    for name in ("A", "B"):
        bench.serve(name, slots=9, v=["i-1"])
    many = [bench.enqueue(b"1", endpoint_name="A") for _ in range(9)]
    few = [bench.enqueue(b"1", endpoint_name="B") for _ in range(2)]
    gate = asyncio.Event()

    async def wait(_: web.Request) -> web.Response:
        await gate.wait()
        return web.Response()

    container.answer = wait
    await bench.begun(container, 4)
    assert [bench.get(one).state for one in few] == ["LEASED"] * 2
    assert [bench.get(one).state for one in many] == ["LEASED"] * 2 + ["QUEUED"] * 7
    gate.set()


async def test_without_instances_requests_wait_until_they_are_too_old(bench) -> None:
    bench.serve(v=[])
    sequence = bench.enqueue(b"1")
    await bench.work()
    assert bench.get(sequence).state is AsyncState.QUEUED
    bench.clock.seconds += 599.9
    await bench.work()
    assert bench.get(sequence).state is AsyncState.QUEUED
    bench.clock.seconds += 0.1
    await bench.work()
    assert bench.get(sequence).state is AsyncState.EXPIRED
    assert bench.outputs() == ["0000-error.out"]
    assert bench.counted("ExpiredRequests") == [1]
    assert bench.counted("InvocationFailures") == []
    assert "RequestTTLSeconds" in json.loads(bench.notices[0].message)["failureReason"]


async def test_a_paused_endpoint_gets_nothing(bench) -> None:
    await bench.container()
    bench.serve()
    with bench.database.write() as connection:
        async_requests.set_mode(connection, "End", QueueMode.PAUSED)
    sequence = bench.enqueue(b"1")
    await bench.work()
    assert bench.get(sequence).state is AsyncState.QUEUED
    with bench.database.write() as connection:
        async_requests.set_mode(connection, "End", QueueMode.DRAINING)
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED


async def test_what_waits_for_a_deleted_endpoint_fails(bench) -> None:
    container = await bench.container()
    bench.serve(v=[])
    old = [bench.enqueue(b"old") for _ in range(3)]
    bench.delete()
    await bench.dispatcher.turn()
    # One of the same name comes at once; it has nothing to do with the old one's requests.
    bench.serve()
    new = bench.enqueue(b"new")
    await bench.work()
    assert [bench.get(one).state for one in old] == ["FAILED"] * 3
    assert "was deleted" in bench.get(old[0]).outcome.failure_reason
    assert bench.get(new).state is AsyncState.SUCCEEDED
    assert [body for _, body in container.got] == [b"new"]
    assert len(bench.notices) == 4


async def test_what_a_deleted_endpoint_left_is_redriven_to_a_new_one(bench) -> None:
    await bench.container()
    bench.serve()
    sequence = bench.enqueue(b"1")
    bench.delete()
    await bench.work()
    assert bench.get(sequence).state is AsyncState.FAILED
    bench.serve()
    await bench.work()
    with bench.database.write() as connection:
        async_requests.redrive(connection, [sequence], bench.clock.now())
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED


async def test_what_a_deleted_endpoint_works_on_is_broken_off(bench) -> None:
    container = await bench.container()
    bench.serve()

    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    container.answer = hang
    sequence = bench.enqueue(b"1")
    await bench.begun(container)
    bench.delete()
    await bench.work()
    assert bench.get(sequence).state is AsyncState.FAILED
    assert bench.object("0000-error.out")[0].startswith(b"The endpoint End was deleted")


async def test_cancelled_while_it_waits(bench) -> None:
    container = await bench.container()
    bench.serve(v=[])
    sequence = bench.enqueue(b"1")
    with bench.database.write() as connection:
        async_requests.cancel(connection, sequence, 1000)
    bench.serve()
    await bench.work()
    assert bench.get(sequence).state is AsyncState.CANCELLED
    assert container.got == []
    assert bench.outputs() == ["0000-error.out"]
    assert [notice.topic_arn for notice in bench.notices] == ["arn:bad"]


async def test_cancelled_while_it_runs(bench) -> None:
    container = await bench.container()
    bench.serve()
    broken_off = asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        while request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        broken_off.set()
        return web.Response()

    container.answer = hang
    sequence = bench.enqueue(b"1")
    await bench.begun(container)
    with bench.database.write() as connection:
        async_requests.cancel(connection, sequence, 1000)
    await bench.work()
    async with asyncio.timeout(5):
        await broken_off.wait()
    assert bench.get(sequence).state is AsyncState.CANCELLED
    assert bench.dispatcher.busy == frozenset()
    assert bench.outputs() == ["0000-error.out"]


# What is lost in between


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
    output = Output(location="s3://outs/same.out")
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
    ends = [bench.enqueue(b"1", output=Output(location=place)) for place in places]
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
    output = Output(location="s3://outs/same.out")
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
    gate = asyncio.Event()

    async def wait(_: web.Request) -> web.Response:
        await gate.wait()
        return web.Response(body=b"old")

    container.answer = wait
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


async def test_leases_are_kept_while_it_is_worked_on(bench) -> None:
    container = await bench.container()
    bench.serve()
    gate = asyncio.Event()

    async def wait(_: web.Request) -> web.Response:
        await gate.wait()
        return web.Response(body=b"done")

    container.answer = wait
    sequence = bench.enqueue(b"1")
    await bench.begun(container)
    for _ in range(10):
        bench.clock.seconds += 20
        await bench.dispatcher.beat()
    assert bench.get(sequence).lease_until == bench.clock.now() + 30
    gate.set()
    await bench.work()
    assert bench.get(sequence).attempt == 1


async def test_a_slow_disk_does_not_make_a_running_request_lost(bench, monkeypatch) -> None:
    container = await bench.container()
    bench.serve()
    gate = asyncio.Event()

    async def wait(_: web.Request) -> web.Response:
        await gate.wait()
        return web.Response(body=b"done")

    container.answer = wait
    sequence = bench.enqueue(b"1")
    await bench.begun(container)
    join = bench.writes.join

    async def slow(work):
        bench.clock.seconds += 40
        done = await join(work)
        bench.clock.seconds += 40
        return done

    monkeypatch.setattr(bench.writes, "join", slow)
    await bench.dispatcher.beat()
    assert bench.get(sequence).state is AsyncState.LEASED
    monkeypatch.undo()
    gate.set()
    await bench.work()
    assert (bench.get(sequence).attempt, len(container.got)) == (1, 1)


async def test_what_was_leased_a_moment_ago_is_not_lost(bench, monkeypatch) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(b"1")
    join = bench.writes.join
    committed = asyncio.Event()

    async def slow(work):
        done = await join(work)
        if not committed.is_set():
            committed.set()
            bench.clock.seconds += 40
            # The other writers' turn, before who leased hears of it.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return done

    monkeypatch.setattr(bench.writes, "join", slow)
    turning = asyncio.create_task(bench.dispatcher.turn())
    await committed.wait()
    await bench.dispatcher.beat()
    await turning
    await bench.work()
    assert (bench.get(sequence).attempt, len(container.got)) == (1, 1)


async def test_a_beat_that_fails_is_not_the_last(bench, monkeypatch) -> None:
    beats: list[int] = []
    enough = asyncio.Event()

    async def beat() -> None:
        beats.append(1)
        if len(beats) > 2:
            enough.set()
            await asyncio.Event().wait()
        raise RuntimeError("broken")

    monkeypatch.setattr(bench.dispatcher, "beat", beat)
    beating = asyncio.create_task(bench.dispatcher._beat())
    async with asyncio.timeout(10):
        await enough.wait()
    beating.cancel()


async def test_only_one_dispatches(bench) -> None:
    await bench.container()
    bench.serve()
    await bench.dispatcher.turn()
    other = bench.new_dispatcher()
    other._holder = "elsewhere"
    sequence = bench.enqueue(b"1")
    await other.turn()
    assert bench.get(sequence).state is AsyncState.QUEUED
    bench.clock.seconds += 5
    await other.turn()
    assert bench.get(sequence).state is AsyncState.LEASED
    await bench.dispatcher.turn()
    await asyncio.wait(list(other._tasks.values()))
    await other._stop()


async def test_what_is_stopped_is_given_back(bench) -> None:
    container = await bench.container()
    bench.serve()

    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    container.answer = hang
    sequence = bench.enqueue(b"1")
    await bench.begun(container)
    await bench.dispatcher._stop()
    given = bench.get(sequence)
    assert (given.state, given.lost, given.reclaimed) == ("QUEUED", 0, 0)


async def test_an_answer_is_written_down_before_control_ends(bench, monkeypatch) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(b"1")
    writing, go_on = slow_puts(bench, monkeypatch)
    await bench.dispatcher.turn()
    await asyncio.to_thread(writing.wait, 10)
    stopping = asyncio.create_task(bench.dispatcher._stop())
    await asyncio.sleep(0)
    go_on.set()
    await stopping
    assert bench.get(sequence).state is AsyncState.SUCCEEDED
    assert len(container.got) == 1


async def test_what_is_still_written_when_control_ends_is_not_given_back(
    bench, monkeypatch
) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(b"1")
    writing, go_on = slow_puts(bench, monkeypatch)
    monkeypatch.setattr(dispatcher, "STOP_SECONDS", 0.01)
    await bench.dispatcher.turn()
    await asyncio.to_thread(writing.wait, 10)
    threads = bench.dispatcher._work.threads
    await bench.dispatcher._stop()
    assert bench.get(sequence).state is AsyncState.LEASED
    go_on.set()
    await asyncio.to_thread(threads._pool.shutdown)
    await bench.restart()
    await bench.work()
    ended = bench.get(sequence)
    assert (ended.state, ended.attempt) == ("SUCCEEDED", 2)
    assert len(container.got) == 1


def slow_puts(bench, monkeypatch) -> tuple[threading.Event, threading.Event]:
    """Set when an object is being written, and to be set for it to be.

    None is small enough to be written together with its request's end.
    """
    monkeypatch.setattr(bench.dispatcher._work.outputs, "small", lambda *_: None)
    writing, go_on = threading.Event(), threading.Event()
    put = bench.objects.put

    def slow(*given):
        writing.set()
        go_on.wait(10)
        return put(*given)

    monkeypatch.setattr(bench.objects, "put", slow)
    return writing, go_on


# What is away


async def test_a_store_that_is_away_loses_nothing(bench, monkeypatch) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(input_location=bench.put("a", b"x" * 100_000))
    put, opened = bench.objects.put, bench.objects.open
    until = bench.clock.now() + 60

    def away(work):
        def call(*given):
            if bench.clock.now() < until:
                raise Unavailable("The object store failed: away")
            return work(*given)

        return call

    monkeypatch.setattr(bench.objects, "open", away(opened))
    monkeypatch.setattr(bench.objects, "put", discarding(away(put)))
    await bench.work()
    until = bench.clock.now() + 60
    bench.enqueue(b"y" * 200_000)
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED
    assert bench.outputs() == ["0000.out", "0001.out"]
    assert bench.object("0001.out")[0] == b"y" * 400_000
    assert len(container.got) == 2, "an answer is kept while it cannot be written"
    assert list((bench.home.objects / "drafts").iterdir()) == []


def discarding(put):
    """As every store does with what it cannot keep."""

    def call(bucket, key, draft, attributes):
        try:
            return put(bucket, key, draft, attributes)
        except Unavailable:
            draft.discard()
            raise

    return call


@pytest.mark.parametrize("size", [10_000, 100_000, 450_000])
async def test_a_full_disk_makes_nobody_be_asked_again(bench, monkeypatch, size) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(b"x" * size)
    until = bench.clock.now() + 60
    leave_reserve = files._leave_reserve

    def full(folder) -> None:
        if bench.clock.now() < until:
            raise OSError(errno.ENOSPC, "full")
        leave_reserve(folder)

    monkeypatch.setattr(files, "_leave_reserve", full)
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED
    assert bench.object("0000.out")[0] == b"x" * size * 2
    assert len(container.got) == 1
    assert list((bench.home.objects / "drafts").iterdir()) == []


async def test_a_disk_that_stays_full_fails_what_was_answered(bench, monkeypatch) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(b"x" * 100_000)

    def full(folder) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(files, "_leave_reserve", full)
    await bench.work()
    ended = bench.get(sequence)
    assert ended.state is AsyncState.FAILED
    assert "could not be kept: The disk" in ended.outcome.failure_reason
    assert len(container.got) == 1


async def test_a_store_that_stays_away_fails_the_request(bench, monkeypatch) -> None:
    await bench.container()
    bench.serve()

    def away(*_: object) -> None:
        raise Unavailable("The object store failed: away")

    monkeypatch.setattr(bench.objects, "put", away)
    sequence = bench.enqueue(LARGE)
    await bench.work()
    ended = bench.get(sequence)
    assert ended.state is AsyncState.FAILED
    assert "s3://outs/0000.out: The object store failed: away" in ended.outcome.failure_reason
    assert ended.outcome.location is None
    assert bench.counted("ResponseUploadFailures") == [1, 1]
    assert len(bench.notices) == 1


async def test_a_database_that_is_away_for_minutes_makes_nobody_be_asked_again(
    bench, monkeypatch
) -> None:
    container = await bench.container()
    bench.serve()
    sequence = bench.enqueue(b"1")
    answer = container.answer
    until = 0.0

    async def answer_and_away(request: web.Request) -> web.StreamResponse:
        nonlocal until
        until = bench.clock.now() + 120
        return await answer(request)

    container.answer = answer_and_away
    write = Database.write

    def away(database):
        if bench.clock.now() < until:
            raise OperationalError("", {}, Exception("away"))
        return write(database)

    monkeypatch.setattr(Database, "write", away)
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED
    assert len(container.got) == 1


async def test_an_input_that_cannot_be_read_with_its_lease_stops_nobody(bench, monkeypatch) -> None:
    container = await bench.container()
    bench.serve()
    location = bench.put("a", b"1")
    sequences = [bench.enqueue(b"1"), bench.enqueue(input_location=location)]

    def broken(*_):
        raise KeyError("broken")

    monkeypatch.setattr(bench.objects, "read_rows", broken)
    await bench.work()
    assert [bench.get(one).state for one in sequences] == ["SUCCEEDED", "SUCCEEDED"]
    assert len(container.got) == 2


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


async def test_a_bucket_that_is_gone_is_not_waited_for(bench) -> None:
    await bench.container()
    bench.serve()
    before = bench.clock.now()
    sequence = bench.enqueue(b"1", output=Output(location="s3://gone/x", error_topic="arn:bad"))
    await bench.work()
    assert "There is no bucket gone" in bench.get(sequence).outcome.failure_reason
    assert bench.clock.now() == before


async def test_a_database_that_is_away_for_a_while(bench, monkeypatch) -> None:
    await bench.container()
    bench.serve()
    sequence = bench.enqueue(b"1")
    join = GroupedWrites.join
    failing = iter([False, True, True, True])

    async def away(self, work):
        if next(failing, False):
            raise OperationalError("away", None, Exception())
        return await join(self, work)

    monkeypatch.setattr(GroupedWrites, "join", away)
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED
    assert len(bench.notices) == 1


@pytest.mark.parametrize("topic", ["arn:gone", "arn:broken"])
async def test_a_notice_that_cannot_be_published_changes_nothing(bench, topic) -> None:
    await bench.container()
    bench.serve()
    output = Output(location="s3://outs/x.out", success_topic=topic)
    sequence = bench.enqueue(b"1", output=output)
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED
    assert bench.counted("NotificationFailures") == [1]


async def test_a_broken_input_is_sent_again(bench, monkeypatch) -> None:
    container = await bench.container()
    bench.serve()
    location = bench.put("a", b"x" * 3_000_000)
    opened = bench.objects.open
    breaks = iter([True])

    def broken(*given):
        found = opened(*given)
        if next(breaks, False):
            chunks = found.chunks

            def half():
                yield next(chunks())
                raise Unavailable("away")

            found.chunks = half
        return found

    monkeypatch.setattr(bench.objects, "open", broken)
    sequence = bench.enqueue(input_location=location)
    await bench.work()
    bench.clock.seconds += 5
    await bench.work()
    ended = bench.get(sequence)
    assert (ended.attempt, ended.lost) == (2, 1)
    assert [len(body) for _, body in container.got] == [3_000_000]


async def test_a_retired_instance_is_busy_until_it_is_done(bench) -> None:
    old = await bench.container("i-1")
    bench.serve()
    gate = asyncio.Event()

    async def wait(_: web.Request) -> web.Response:
        await gate.wait()
        return web.Response(body=b"old")

    old.answer = wait
    bench.enqueue(b"1")
    await bench.begun(old)
    new = await bench.container("i-2")
    bench.serve(v=["i-2"])
    idle = asyncio.Event()
    bench.dispatcher.on_idle = idle.set
    bench.enqueue(b"2")
    await bench.begun(new)
    assert "i-1" in bench.dispatcher.busy
    gate.set()
    await bench.work()
    assert idle.is_set()
    assert bench.dispatcher.busy == frozenset()
    assert bench.object("0000.out")[0] == b"old"


async def test_nothing_is_kept_of_what_has_ended(bench) -> None:
    await bench.container()
    bench.serve(slots=50)
    for _ in range(100):
        bench.enqueue(b"1")
    await bench.work()
    dispatcher = bench.dispatcher
    assert not dispatcher._jobs
    assert not dispatcher._tasks
    assert len(bench.outputs()) == 100
