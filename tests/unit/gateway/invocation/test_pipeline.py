"""Inference pipelines: what each container gets, and what the caller is told."""

import asyncio
import gc
import random

import msgspec
import pytest
from botocore.eventstream import EventStreamBuffer

from sagehen.gateway.invocation.pipeline import PipelineRun, StageAnswer
from support.several import several

STREAM = "/endpoints/price/invocations-response-stream"
NOT_STARTED = b"HTTP/1.1 503 X\r\nx-sagehen-not-started: 1\r\nContent-Length: 0\r\n\r\n"
TARGET = {"X_Amzn_SageMaker_Target_Model": "Houston.tar.gz"}


def adds(text, content_type="text/csv"):
    return lambda asked: (200, {"Content-Type": content_type}, asked.body + text)


@pytest.fixture
async def clean(house):
    return await house.fake(adds(b" cleaned", "text/x-clean; v=1"))


@pytest.fixture
async def predict(house):
    return await house.fake(adds(b" predicted", "text/x-predicted"))


@pytest.fixture
async def explain(house):
    return await house.fake(adds(b" explained", "text/x-explained"))


def names(fake, *wanted):
    return [fake.asked[-1].fields.get(one) for one in wanted]


def left(house):
    """Slots, bodies, live requests and waiters that are held."""
    context, counters = house.gateway._context, house.gateway._counters._variants.values()
    pools = [pool for one in house.gateway._routes.instances() for pool in one.all_upstreams]
    return (
        house.outstanding(),
        context.body_memory.bytes,
        len(context.active),
        sum(one.in_flight.now for one in counters),
        sum(len(pool._waiting) for pool in pools),
    )


NOTHING = (0, 0, 0, 0, 0)


async def test_each_answer_is_the_next_request(house, clean, predict, explain):
    house.route(several((clean, predict, explain)))
    await house.start()
    got = await house.invoke(
        b"raw",
        Content_Type="text/x-raw",
        Accept="text/x-wanted",
        X_Amzn_SageMaker_Custom_Attributes="mine",
        X_Secret="not theirs",
    )
    assert (got.status, got.body) == (200, b"raw cleaned predicted explained")
    assert got.headers["content-type"] == "text/x-explained"
    assert got.headers["x-amzn-invoked-production-variant"] == "AllTraffic"
    wanted = ("content-type", "accept", "x-amzn-sagemaker-custom-attributes", "x-secret")
    assert names(clean, *wanted) == ["text/x-raw", None, "mine", None]
    assert names(predict, *wanted) == ["text/x-clean; v=1", None, "mine", None]
    assert names(explain, *wanted) == ["text/x-predicted", "text/x-wanted", "mine", None]
    assert {one.asked[0].path for one in (clean, predict, explain)} == {"/invocations"}
    assert left(house) == NOTHING


async def test_an_answer_without_a_type_is_a_request_without(house, predict):
    silent = await house.fake(lambda asked: (204, {}, b""))
    house.route(several((silent, predict)))
    await house.start()
    got = await house.invoke(b"raw", Content_Type="text/x-raw")
    assert got.body == b" predicted"
    assert names(predict, "content-type", "content-length") == [None, "0"]


async def test_large_bodies_go_through_whole(house, variant, echo):
    house.route(several((await house.fake(echo), await house.fake(echo))))
    await house.start()
    body = bytes(range(256)) * 12_000
    got = await house.invoke(body)
    assert got.body == body
    assert left(house) == NOTHING


@pytest.mark.parametrize(("at", "hostname"), [(0, "clean"), (1, "predict"), (2, "explain")])
@pytest.mark.parametrize("status", [400, 500])
async def test_who_answers_with_an_error_is_named(house, echo, at, hostname, status):
    fakes = [await house.fake(echo) for _ in range(3)]
    fakes[at].answering = lambda asked: (status, {}, b"no house")
    house.route(several(tuple(fakes)))
    await house.start()
    got = await house.invoke()
    side = "client" if status == 400 else "server"
    said = f'Received {side} error ({status}) from {hostname} with message "no house". See '
    assert got.status == 424
    assert got.json["Message"].startswith(said)
    assert (got.json["OriginalStatusCode"], got.json["OriginalMessage"]) == (status, "no house")
    assert [len(one.asked) for one in fakes] == [1] * (at + 1) + [0] * (2 - at)
    assert left(house) == NOTHING


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("how", ["hangs up", "is ending", "is not there"])
async def test_who_is_lost_behind_the_first_is_named_and_nothing_is_sent_twice(
    house, echo, at, how
):
    fakes = [await house.fake(echo) for _ in range(3)]
    fakes[at].answering = lambda asked: None if how == "hangs up" else NOT_STARTED
    places = list(fakes)
    if how == "is not there":
        places[at] = f"unix:{house.home.run}/nobody.sock"
    house.route(several(tuple(places), tuple(fakes)))
    await house.start()
    answers = [await house.invoke() for _ in range(12)]
    failed = [one for one in answers if one.status != 200]
    assert failed
    hostname = ("clean", "predict", "explain")[at]
    for one in failed:
        assert one.status == 424
        assert one.json["OriginalStatusCode"] == 0
        assert one.json["Message"].startswith(
            f'Received server error (0) from {hostname} with message "Amazon SageMaker could not '
            "get a response from the price endpoint."
        )
    assert len(fakes[0].asked) == len(answers)
    assert left(house) == NOTHING


async def test_what_the_first_did_not_begin_goes_to_another_instance(house, echo):
    ending = await house.fake(lambda asked: NOT_STARTED)
    others = [await house.fake(echo) for _ in range(3)]
    house.route(several((ending, others[0]), (others[1], others[2])))
    await house.start()
    answers = [await house.invoke() for _ in range(8)]
    assert [one.status for one in answers] == [200] * 8
    assert ending.asked
    assert (len(others[0].asked), len(others[2].asked)) == (0, 8)


async def test_where_nothing_was_begun_and_there_is_no_other_nothing_is_said_to_be(house, echo):
    house.route(several((f"unix:{house.home.run}/nobody.sock", await house.fake(echo))))
    await house.start()
    got = await house.invoke()
    assert (got.status, got.headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")
    assert left(house) == NOTHING


@pytest.mark.parametrize("chunked", [False, True])
async def test_what_is_too_large_for_the_next_is_said_in_sagemakers_words(
    house, predict, limits_met, chunked
):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2097153\r\n\r\n" + bytes(2_097_153)
    grown = head + b"200001\r\n%b\r\n0\r\n\r\n" % bytes(0x200001) if chunked else whole
    house.route(several((await house.fake(lambda asked: grown), predict)))
    await house.start(max_pipeline_body_bytes=2 * 2**20)
    got = await house.invoke()
    assert got.status == 424
    assert got.json["Message"].startswith(
        "Received response from clean with status code 200. However, the request payload from "
        "clean to predict is 2097153 bytes, which has exceeded the maximum limit of 2 MB. See "
    )
    assert predict.asked == []
    assert limits_met() == {"pipeline_body": 1}
    assert left(house) == NOTHING


async def test_the_last_answer_has_no_such_limit(house, clean):
    last = await house.fake(lambda asked: (200, {}, bytes(3_000_000)))
    house.route(several((clean, last)))
    await house.start(max_pipeline_body_bytes=100)
    assert len((await house.invoke(b"raw")).body) == 3_000_000


async def test_all_containers_share_one_budget_of_time(house, clean, eventually):
    async def never(asked):
        house.clock.advance(60)
        await asyncio.Event().wait()

    async def slow(asked):
        house.clock.advance(30)
        return 200, {}, b"late"

    slow_one, silent = await house.fake(slow), await house.fake(never)
    house.route(several((clean, slow_one, silent)))
    await house.start()
    got = await house.invoke()
    assert got.status == 424
    assert "waiting for a response from container explain." in got.json["OriginalMessage"]
    assert got.json["Message"].startswith("Received server error (0) from explain with")
    await eventually(lambda: silent.lost)
    assert left(house) == NOTHING


@pytest.mark.parametrize("at", [0, 1])
async def test_a_caller_who_leaves_ends_it_wherever_it_is(house, echo, eventually, at):
    async def never(asked):
        await asyncio.Event().wait()

    fakes = [await house.fake(echo), await house.fake(echo)]
    fakes[at].answering = never
    house.route(several(tuple(fakes)))
    await house.start()
    client = await house.connect()
    client.send(house.signed())
    await eventually(lambda: fakes[at].asked)
    client.close()
    await eventually(lambda: fakes[at].lost)
    await eventually(lambda: left(house) == NOTHING)
    assert [len(fake.asked) for fake in fakes] == [1, at]


async def test_a_slot_is_held_for_the_whole_passage(house, echo, eventually):
    go = asyncio.Event()

    async def waits(asked):
        await go.wait()
        return 200, {}, asked.body

    first, second = await house.fake(echo), await house.fake(waits)
    house.route(several((first, second), slots=1))
    await house.start()
    callers = [asyncio.create_task(house.invoke()) for _ in range(3)]
    await eventually(lambda: second.asked)
    await eventually(lambda: house.gateway._routes.queued == 2)
    assert (house.outstanding(), len(first.asked)) == (1, 1)
    go.set()
    assert [(await one).status for one in callers] == [200] * 3
    assert left(house) == NOTHING


async def test_a_stream_comes_from_the_last_container(house, clean):
    pieces = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
    )
    last = await house.fake(lambda asked: pieces)
    house.route(several((clean, last)))
    await house.start()
    got = await house.invoke(
        b"raw", path=STREAM, Content_Type="text/x-raw", X_Amzn_SageMaker_Accept="text/x-wanted"
    )
    frames = EventStreamBuffer()
    frames.add_data(got.body)
    assert [frame.payload for frame in frames] == [b"one", b"two"]
    assert last.asked[0].body == b"raw cleaned"
    assert names(clean, "accept") == [None]
    assert names(last, "accept", "content-type") == ["text/x-wanted", "text/x-clean; v=1"]


async def test_a_stream_that_breaks_names_the_last_container(house, clean):
    broken = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\none"

    async def breaks(head, reader, writer):
        writer.write(broken)
        await writer.drain()

    last = await house.raw(breaks, house.home.run / "breaks.sock")
    house.route(several((clean, last)))
    await house.start()
    got = await house.invoke(path=STREAM)
    assert b"The connection to container predict was lost" in got.body


class Agent:
    def __init__(self):
        self.loads = []
        self.failure = None

    def __call__(self, asked):
        body = msgspec.json.decode(asked.body)
        if asked.path.endswith("/touch"):
            return 204, {}, b""
        self.loads.append((asked.path, body["target_model"]))
        if self.failure is not None:
            return self.failure, {}, b'{"message": "no"}'
        return 200, {}, b'{"model_name": "m-1", "hit": false}'


@pytest.fixture
async def agent(house):
    agent = Agent()
    await house.agent(agent)
    return agent


@pytest.mark.parametrize("many", ["clean", "predict", "explain"])
async def test_the_target_model_is_that_of_the_one_that_holds_many(house, agent, echo, many):
    fakes = {one: await house.fake(echo) for one in ("clean", "predict", "explain")}
    house.route(several(tuple(fakes.values()), many=many))
    await house.start()
    for _ in range(2):
        assert (await house.invoke(**TARGET)).body == b"1,2"
    assert agent.loads == [("/instances/i-0/models", "Houston.tar.gz")]
    paths = {one: {asked.path for asked in fake.asked} for one, fake in fakes.items()}
    assert paths == {one: {"/invocations"} for one in fakes} | {many: {"/models/m-1/invoke"}}


@pytest.mark.parametrize("at", [0, 1])
async def test_a_model_that_was_lost_is_loaded_again_and_only_its_container_asked_again(
    house, agent, echo, at
):
    first, second = await house.fake(echo), await house.fake(echo)
    holder = (first, second)[at]
    holder.answering = lambda asked: (
        (404, {}, b"") if len(holder.asked) == 1 else (200, {}, asked.body + b"!")
    )
    house.route(several((first, second), many=("clean", "predict")[at]))
    await house.start()
    got = await house.invoke(**TARGET)
    assert (got.status, got.body) == (200, b"1,2!")
    assert len(agent.loads) == 2
    assert (len(first.asked), len(second.asked)) == ((2, 1), (1, 2))[at]
    assert left(house) == NOTHING


async def test_another_containers_404_is_its_own(house, agent, echo):
    first, second = await house.fake(lambda asked: (404, {}, b"gone")), await house.fake(echo)
    house.route(several((first, second), many="predict"))
    await house.start()
    got = await house.invoke(**TARGET)
    assert got.json["Message"].startswith("Received client error (404) from clean with message")
    assert (len(agent.loads), len(first.asked)) == (1, 1)


async def test_a_model_that_cannot_be_loaded_again_ends_it(house, agent, echo):
    def loses(asked):
        agent.failure = 503
        return 404, {}, b""

    first, second = await house.fake(echo), await house.fake(loses)
    house.route(several((first, second), many="predict"))
    await house.start()
    got = await house.invoke(**TARGET)
    assert got.json["Message"].startswith("Received server error (0) from predict with message")
    assert (len(first.asked), len(second.asked)) == (1, 1)
    assert left(house) == NOTHING


async def test_time_and_errors_are_counted_by_container(house, echo):
    async def slow(asked):
        house.clock.advance(2)
        return 200, {}, asked.body

    async def slower(asked):
        house.clock.advance(3)
        return 200 if asked.body == b"good" else 500, {}, asked.body

    await house.control(lambda asked: None)
    house.route(several((await house.fake(slow), await house.fake(slower))))
    await house.start()
    await house.invoke(b"good")
    await house.invoke(b"bad")
    await house.stop()
    told = {one["container"]: one for one in house.told["variants"]}
    whole, first, second = told[""], told["clean"], told["predict"]
    assert [one["is_stage"] for one in (whole, first, second)] == [False, True, True]
    assert [one["Invocations"] for one in (whole, first, second)] == [2, 2, 2]
    assert [one["Invocation5XXErrors"] for one in (whole, first, second)] == [1, 0, 1]
    sums = [one["ModelLatency"]["sum"] / 1e6 for one in (whole, first, second)]
    assert sums == pytest.approx([10, 4, 6])
    assert whole["OverheadLatency"]["sum"] == 0


MOODS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + bytes(400_000),
    b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + bytes(300_000),
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 500 X\r\nContent-Length: 3\r\n\r\nbad",
    b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n",
    b"rubbish\r\n\r\n",
    b"",
    NOT_STARTED,
]


@pytest.mark.parametrize("many", ["", "predict"])
async def test_whatever_containers_and_callers_do_nothing_is_left(
    house, agent, eventually, caplog, many
):
    rng = random.Random(many)

    async def moody(head, reader, writer):
        if rng.random() < 0.2:
            await reader.read()  # until the other side has had enough
        else:
            writer.write(rng.choice(MOODS))
            await writer.drain()

    async def caller():
        client = await house.connect()
        body, target = bytes(rng.choice([0, 300_000])), TARGET if many else {}
        path = "/endpoints/price/invocations" if many or rng.random() < 0.5 else STREAM
        client.send(house.signed(body, path=path, **target))
        for _ in range(rng.randint(0, 20)):
            await asyncio.sleep(0.001)
        client.writer.transport.abort()

    places = [await house.raw(moody, house.home.run / f"m{number}.sock") for number in range(6)]
    house.route(several(tuple(places[:3]), tuple(places[3:]), slots=2, many=many))
    await house.start(max_pipeline_body_bytes=350_000)
    for _ in range(10):
        await asyncio.gather(*(caller() for _ in range(8)))
        house.clock.advance(rng.choice([0, 1, 30, 70]))

    def nothing():
        house.clock.advance(1)
        return left(house) == NOTHING and not house.gateway._routes.queued

    await eventually(nothing)
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


async def test_a_passage_leaves_no_cycle(house, echo):
    async def moody(asked):
        return (500 if asked.body == b"bad" else 200), {}, asked.body

    house.route(several((await house.fake(echo), await house.fake(moody))))
    await house.start()
    gc.collect()
    gc.disable()
    try:
        for body in (b"good", b"bad"):
            for path in ("/endpoints/price/invocations", STREAM):
                await house.invoke(body, path=path)
        kept = [one for one in gc.get_objects() if type(one) in (PipelineRun, StageAnswer)]
    finally:
        gc.enable()
    assert kept == []
