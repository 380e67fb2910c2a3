"""InvokeEndpointWithResponseStream, with a container that sends as the test tells it to."""

import asyncio

import pytest
from botocore.eventstream import EventStreamBuffer

PATH = "/endpoints/price/invocations-response-stream"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


class Teller:
    """A container that says what the test puts into it; None hangs up."""

    def __init__(self):
        self.asked = []
        self.says = asyncio.Queue()
        self.lost = asyncio.Event()

    async def handle(self, head, reader, writer):
        self.asked.append(head)
        speaking = asyncio.create_task(self.speak(writer))
        try:
            await reader.read()
        finally:
            # Also by an error: what the other side left unread makes its end a reset.
            speaking.cancel()
            self.lost.set()

    async def speak(self, writer):
        while (data := await self.says.get()) is not None:
            writer.write(data)
            await writer.drain()
        writer.transport.abort()

    def say(self, *parts):
        for part in parts:
            self.says.put_nowait(part)


class Listener:
    """A caller who reads frame by frame."""

    def __init__(self, client):
        self.client = client
        self.frames = EventStreamBuffer()
        self.status = 0
        self.headers = {}

    async def begin(self):
        self.status, self.headers = await self.client.head()

    async def hear(self):
        """The next frame; None at a clean end."""
        while True:
            for message in self.frames:
                return message
            size = int(await self.client.reader.readline(), 16)
            self.frames.add_data(await self.client.reader.readexactly(size))
            await self.client.reader.readline()
            if not size:
                return None

    async def hear_all(self):
        heard = []
        while (message := await self.hear()) is not None:
            heard.append(message)
        return heard


@pytest.fixture
async def teller(house, variant):
    teller = Teller()
    house.route(variant(await house.raw(teller.handle, house.home.run / "teller.sock")))
    return teller


@pytest.fixture
def ask(house):
    async def asked(**headers):
        client = await house.connect()
        client.send(house.signed(path=PATH, **headers))
        return Listener(client)

    return asked


def refusal(message):
    return message.headers[":exception-type"], message.payload


async def test_each_piece_is_there_before_the_next_is_sent(house, teller, ask):
    await house.start()
    caller = await ask()
    teller.say(HEAD + chunk(b"one"))
    await caller.begin()
    assert (await caller.hear()).payload == b"one"
    teller.say(chunk(b"two"))
    assert (await caller.hear()).payload == b"two"
    teller.say(b"0\r\n\r\n")
    assert await caller.hear() is None
    assert house.outstanding() == 0


async def test_the_head_is_the_callers_and_the_containers(house, teller, ask):
    await house.start()
    caller = await ask(
        Accept="application/x-of-the-sdk",
        X_Amzn_SageMaker_Accept="text/plain",
        Content_Type="text/csv",
        X_Amzn_SageMaker_Custom_Attributes="theirs",
    )
    teller.say(
        b"HTTP/1.1 201 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nX-Secret: s\r\n"
        b"X-Amzn-SageMaker-Custom-Attributes: mine\r\n\r\n42"
    )
    await caller.begin()
    assert caller.status == 200
    assert caller.headers["content-type"] == "application/vnd.amazon.eventstream"
    assert caller.headers["x-amzn-sagemaker-content-type"] == "text/plain"
    assert caller.headers["x-amzn-sagemaker-custom-attributes"] == "mine"
    assert caller.headers["x-amzn-invoked-production-variant"] == "AllTraffic"
    assert "x-secret" not in caller.headers
    (message,) = await caller.hear_all()
    assert message.payload == b"42"
    assert message.headers[":event-type"] == "PayloadPart"
    (head,) = teller.asked
    assert head.startswith(b"POST /invocations HTTP/1.1\r\n")
    lines = set(head.lower().split(b"\r\n"))
    assert {b"accept: text/plain", b"content-type: text/csv"} <= lines
    assert not any(b"x-of-the-sdk" in line or b"sagemaker-accept" in line for line in lines)


async def test_an_empty_answer_is_an_empty_stream(house, teller, ask):
    await house.start()
    caller = await ask()
    teller.say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    await caller.begin()
    assert (caller.status, await caller.hear_all()) == (200, [])


@pytest.mark.parametrize("status", [400, 500])
async def test_an_error_before_the_first_byte_is_a_model_error(house, teller, ask, status):
    await house.start()
    caller = await ask()
    teller.say(b"HTTP/1.1 %d X\r\nContent-Length: 3\r\n\r\nbad" % status)
    got = await caller.client.answer()
    assert (got.status, got.headers["x-amzn-errortype"]) == (424, "ModelError")
    assert got.json["OriginalStatusCode"] == status
    assert got.json["OriginalMessage"] == "bad"


@pytest.mark.parametrize("before", [(), (HEAD,)])
async def test_a_container_lost_before_the_first_byte_is_a_model_error(house, teller, ask, before):
    await house.start()
    caller = await ask()
    teller.say(*before, None)
    got = await caller.client.answer()
    assert (got.status, got.json["OriginalStatusCode"]) == (424, 0)
    assert "could not get a response from the price endpoint" in got.json["Message"]


async def test_a_container_lost_in_the_middle_is_an_exception_and_a_clean_end(house, teller, ask):
    await house.start()
    caller = await ask()
    teller.say(HEAD + chunk(b"half"))
    await caller.begin()
    assert (await caller.hear()).payload == b"half"
    teller.say(None)
    (message,) = await caller.hear_all()
    kind, payload = refusal(message)
    assert kind == "ModelStreamError"
    assert b'"ErrorCode": "StreamBroken"' in payload
    assert house.outstanding() == 0


async def test_the_first_byte_has_the_time_of_an_invocation(
    house, teller, ask, eventually, limits_met
):
    await house.start()
    caller = await ask()
    teller.say(HEAD)
    await eventually(lambda: teller.asked)
    house.clock.advance(60)
    got = await caller.client.answer()
    assert (got.status, got.json["OriginalStatusCode"]) == (424, 0)
    assert "timed out while waiting" in got.json["Message"]
    await teller.lost.wait()
    assert limits_met() == {"invocation_timeout": 1}


async def test_the_stream_has_its_own_time(house, teller, ask, limits_met):
    await house.start()
    caller = await ask()
    teller.say(HEAD + chunk(b"half"))
    await caller.begin()
    assert (await caller.hear()).payload == b"half"
    house.clock.advance(479)
    teller.say(chunk(b"more"))
    assert (await caller.hear()).payload == b"more"
    house.clock.advance(1)
    (message,) = await caller.hear_all()
    kind, payload = refusal(message)
    assert kind == "ModelStreamError"
    assert b'"ErrorCode": "ModelInvocationTimeExceeded"' in payload
    assert (
        b"Your model primary did not complete sending the inference response in the allotted time."
        in payload
    )
    await teller.lost.wait()
    assert limits_met()["stream_timeout"] == 1


async def test_a_caller_who_leaves_ends_the_call_to_the_container(house, teller, ask):
    await house.start(max_queued_invocations=1)
    caller = await ask()
    teller.say(HEAD + chunk(b"half"))
    await caller.begin()
    caller.client.close()
    await teller.lost.wait()
    assert house.outstanding() == 0


async def test_streams_count_among_the_invocations_that_are_held(house, teller, ask):
    await house.start(max_queued_invocations=1)
    caller = await ask()
    teller.say(HEAD + chunk(b"half"))
    await caller.begin()
    got = await house.invoke()
    assert (got.status, got.headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")


async def test_a_slow_reader_holds_its_container_back(house, variant, comes_to_rest):
    place, sent = await house.endless(HEAD, chunk(bytes(1_000_000)))
    house.route(variant(place))
    await house.start()
    client = await house.connect()
    client.stop_reading()
    client.send(house.signed(path=PATH))
    assert await comes_to_rest(sent) < 50
    client.close()


@pytest.mark.parametrize(
    "header",
    [
        {"X_Amzn_SageMaker_Target_Model": "a.tar.gz"},
        {"X_Amzn_SageMaker_Enable_Explanations": "`true`"},
        {"X_Amzn_SageMaker_Target_Container_Hostname": "second"},
        {"X_Amzn_SageMaker_Inference_Component": "part"},
        {"X_Amzn_SageMaker_Prefix_Aware_Id": "id"},
        {"X_Amzn_SageMaker_Session_Id": "NEW_SESSION"},
        {"X_Amzn_SageMaker_Accept": "a" * 1025},
    ],
)
async def test_what_a_stream_cannot_do_is_refused(house, teller, header):
    await house.start()
    got = await house.invoke(path=PATH, **header)
    assert (got.status, got.headers["x-amzn-errortype"]) == (400, "ValidationError")
    assert got.json["Message"]
    assert teller.asked == []


async def test_an_unsigned_stream_is_refused(house, teller):
    await house.start()
    got = await house.invoke(path=PATH, secret="other")
    assert got.status == 403
    assert teller.asked == []


async def test_a_stream_that_outlives_the_gateway_ends_with_an_exception(house, teller, ask):
    await house.start()
    caller = await ask()
    teller.say(HEAD + chunk(b"half"))
    await caller.begin()
    assert (await caller.hear()).payload == b"half"
    await house.stop()
    (message,) = await caller.hear_all()
    kind, payload = refusal(message)
    assert kind == "InternalStreamFailure"
    assert b"stopped" in payload
    await teller.lost.wait()
