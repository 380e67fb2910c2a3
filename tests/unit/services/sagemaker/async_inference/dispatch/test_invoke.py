"""What a container is asked, and what becomes of its answer."""

import asyncio
import json

import pytest
from aiohttp import web

from sagehen.base.errors import Unavailable
from sagehen.services.sagemaker.async_inference.records import AsyncState, OutputTarget


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
    output = OutputTarget(location="s3://outs/x.out", error_topic="arn:bad")
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
    bench.dispatcher._work.invoker.inputs._max_bytes = 3
    sequence = bench.enqueue(input_location=bench.put("a", b"1234"))
    await bench.work()
    assert "has 4 bytes; at most 3" in bench.get(sequence).outcome.failure_reason


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
    sequence = bench.enqueue(b"1", timeout_seconds=0.5)
    await bench.work()
    ended = bench.get(sequence)
    assert ended.state is AsyncState.FAILED
    assert "Your invocation timed out" in ended.outcome.failure_reason
    assert bench.dispatcher.busy == frozenset()
    assert len(container.got) == 1
    assert bench.outputs() == ["0000-error.out"]


@pytest.mark.parametrize("topic", ["arn:gone", "arn:broken"])
async def test_a_notice_that_cannot_be_published_changes_nothing(bench, topic) -> None:
    await bench.container()
    bench.serve()
    output = OutputTarget(location="s3://outs/x.out", success_topic=topic)
    sequence = bench.enqueue(b"1", output=output)
    await bench.work()
    assert bench.get(sequence).state is AsyncState.SUCCEEDED
    assert bench.counted("NotificationFailures") == [1]


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
