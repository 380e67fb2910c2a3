"""What an invocation is counted as, and the line that it leaves in the access log."""

import asyncio
import re
import threading

import msgspec
import pytest

from sagehen.base.clock import SYSTEM
from sagehen.gateway.client.limits import Limit, no_hits
from sagehen.gateway.metrics.request_metrics import MAX_WAITING_LINES, AccessLog, AccessLogEntry
from sagehen.http1.exchange import Exchange

ENDED = AccessLogEntry(b"id", "price", "a", "a-0", 200, 3, 5, 120, 30)


def fields(line):
    return dict(re.findall(r"(\w+)=(\S+)", line))


async def lines_of(house):
    """What is written until the gateway has ended."""
    await house.stop()
    return "".join(house.written).splitlines()


async def test_nothing_is_written_unless_asked_for(house, variant, echo):
    house.route(variant(await house.fake(echo)))
    await house.start()
    await house.invoke()
    assert await lines_of(house) == []


async def test_a_line_tells_of_an_answer(house, variant):
    def answer(asked):
        house.clock.advance(0.25)
        return 200, {}, b"12345"

    house.route(variant(await house.fake(answer)))
    await house.start(access_log=True)
    got = await house.invoke(b"1,2")
    (line,) = await lines_of(house)
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO gateway \S+: An invoc", line)
    assert fields(line) == {
        "request_id": got.headers["x-amzn-requestid"],
        "endpoint": "price",
        "variant": "AllTraffic",
        "instance": "AllTraffic-0",
        "status": "200",
        "request_bytes": "3",
        "answer_bytes": "5",
        "model_us": "250000",
        "overhead_us": "0",
    }


async def test_a_line_tells_of_a_stream(house, variant, echo):
    house.route(variant(await house.fake(echo)))
    await house.start(access_log=True)
    await house.invoke(b"12345", path="/endpoints/price/invocations-response-stream")
    (line,) = await lines_of(house)
    told = fields(line)
    assert (told["status"], told["answer_bytes"]) == ("200", "5"), "of the model, without frames"


async def test_a_line_tells_of_an_error_of_the_container(house, variant):
    house.route(variant(await house.fake(lambda asked: (500, {}, b"broken"))))
    await house.start(access_log=True)
    got = await house.invoke()
    (line,) = await lines_of(house)
    assert got.status == 424
    told = fields(line)
    assert (told["status"], told["instance"]) == ("424", "AllTraffic-0")
    assert told["answer_bytes"] == got.headers["content-length"]


async def test_a_line_tells_of_a_refusal(house, variant, echo):
    house.route(variant(await house.fake(echo)))
    await house.start(access_log=True)
    await house.invoke(secret="other")
    (line,) = await lines_of(house)
    told = fields(line)
    assert (told["endpoint"], told["status"]) == ("price", "403")
    assert not {"variant", "instance", "model_us"} & set(told)


async def test_a_name_cannot_be_taken_for_a_line(house):
    await house.start(access_log=True)
    client = await house.connect()
    client.send(
        b"POST /endpoints/a%0ab%20status=200/invocations HTTP/1.1\r\nHost: x\r\n"
        b"Content-Length: 0\r\n\r\n"
    )
    await client.answer()
    (line,) = await lines_of(house)
    assert 'endpoint="a\\nb status=200"' in line


async def test_a_line_tells_of_a_caller_that_left(house, variant, eventually):
    async def never(asked):
        await asyncio.Event().wait()

    container = await house.fake(never)
    house.route(variant(container))
    await house.start(access_log=True)
    client = await house.connect()
    client.send(house.signed())
    await eventually(lambda: container.asked)
    client.close()
    await eventually(lambda: container.lost)
    (line,) = await lines_of(house)
    assert (fields(line)["status"], fields(line)["answer_bytes"]) == ("gone", "0")


async def test_an_answer_that_breaks_leaves_one_line(house, variant):
    async def breaks(head, reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + bytes(300_000))
        await writer.drain()

    house.route(variant(await house.raw(breaks, house.home.run / "breaks.sock")))
    await house.start(access_log=True)
    client = await house.connect()
    client.send(house.signed())
    try:
        await client.reader.read(10**7)
        await client.ended()
    finally:
        (line,) = await lines_of(house)
    assert fields(line)["status"] == "cut"


async def test_what_cannot_be_written_in_time_is_dropped_and_told(eventually):
    written: list[str] = []
    go_on = threading.Event()

    def write(text):
        go_on.wait(120)
        written.append(text)

    hits = no_hits()
    access_log = AccessLog(write, SYSTEM, hits)
    access_log.add(ENDED)
    stuck = asyncio.create_task(access_log.flush())
    await eventually(lambda: not access_log._waiting)
    for _ in range(MAX_WAITING_LINES + 7):
        access_log.add(ENDED)
        await access_log.flush() if access_log._dropped == 1 else None
    go_on.set()
    await stuck
    await access_log.flush()
    lines = "".join(written).splitlines()
    assert len(lines) == 1 + MAX_WAITING_LINES + 1
    assert lines[-1].endswith("dropped=7")
    assert hits[Limit.ACCESS_LOG] == 7


async def test_the_log_has_the_same_durations_as_the_metrics(house, variant, monkeypatch):
    def answer(asked):
        house.clock.advance(0.25)
        return 200, {}, b"12345"

    def answer_slowly(exchange, *answer):
        house.clock.advance(0.5)
        give(exchange, *answer)

    give = Exchange.answer
    monkeypatch.setattr(Exchange, "answer", answer_slowly)
    house.route(variant(await house.fake(answer)))
    await house.start(access_log=True)
    await house.invoke(b"1,2")
    (counted,) = msgspec.json.decode(house.gateway._counters.report())["variants"]
    (line,) = await lines_of(house)
    logged = fields(line)
    assert (counted["ModelLatency"]["sum"], counted["OverheadLatency"]["sum"]) == (250_000, 0)
    assert (logged["model_us"], logged["overhead_us"]) == ("250000", "0")


async def test_a_wait_after_a_miss_is_no_time_of_the_model(house, failed_load_after_miss):
    """The container answers 404 after 250 ms; the agent fails to load the model after 2 s."""
    (counted,) = msgspec.json.decode(house.gateway._counters.report())["variants"]
    (line,) = await lines_of(house)
    logged = fields(line)
    assert (counted["ModelLatency"]["sum"], counted["OverheadLatency"]["sum"]) == (
        250_000,
        2_000_000,
    )
    assert (logged["model_us"], logged["overhead_us"]) == ("250000", "2000000")


@pytest.fixture
async def failed_load_after_miss(house, variant):
    def miss(asked):
        house.clock.advance(0.25)
        return 404, {}, b""

    def load(asked):
        if asked.path.endswith("/touch"):
            return 204, {}, b""
        loads.append(asked)
        if len(loads) == 1:
            return 200, {}, b'{"model_name": "m"}'
        house.clock.advance(2)
        return 424, {}, b'{"message": "broken"}'

    loads: list[object] = []
    await house.agent(load)
    house.route(variant(await house.fake(miss), multi_model=True))
    await house.start(access_log=True)
    await house.invoke(X_Amzn_SageMaker_Target_Model="a.tar.gz")
