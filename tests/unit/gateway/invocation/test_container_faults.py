"""Containers that fail, hang, die or are not there: what their callers are told."""

import asyncio
import socket

import pytest

from sagehen.frame.container_specs import write_end
from sagehen.frame.routes import RoutingStrategy
from sagehen.gateway.invocation import invocation


@pytest.mark.parametrize(
    ("status", "side", "code"),
    [
        (400, "client", "CLIENT_ERROR_FROM_MODEL"),
        (404, "client", "CLIENT_ERROR_FROM_MODEL"),
        (500, "server", "INTERNAL_FAILURE_FROM_MODEL"),
        (302, "server", "INTERNAL_FAILURE_FROM_MODEL"),
    ],
)
async def test_a_containers_error_is_a_model_error(house, variant, status, side, code):
    house.route(variant(await house.fake(lambda asked: (status, {}, b'{"bad": 1}'))))
    await house.start()
    got = await house.invoke()
    assert (got.status, got.headers["x-amzn-errortype"]) == (424, "ModelError")
    assert got.json["OriginalStatusCode"] == status
    assert got.json["OriginalMessage"] == '{"bad": 1}'
    assert got.json["ErrorCode"] == code
    assert got.json["LogStreamArn"] == (
        "arn:aws:logs:us-east-1:000000000000:log-group:/aws/sagemaker/Endpoints/price"
    )
    assert got.json["Message"].startswith(
        f'Received {side} error ({status}) from primary with message "{{"bad": 1}}". See '
        "https://us-east-1.console.aws.amazon.com/cloudwatch/home?region=us-east-1"
        "#logEventViewer:group=/aws/sagemaker/Endpoints/price in account 000000000000 for more "
        "information."
    )


async def test_of_a_long_error_only_the_beginning_is_told(house, variant):
    house.route(variant(await house.fake(lambda asked: (500, {}, b"x" * 400_000))))
    await house.start()
    got = await house.invoke()
    assert len(got.json["OriginalMessage"]) == 16 * 1024
    assert '" and could not load the entire response body. See ' in got.json["Message"]


async def test_a_container_that_takes_too_long_is_given_up(house, variant, eventually):
    async def never(asked):
        await asyncio.Event().wait()

    container = await house.fake(never)
    house.route(variant(container))
    await house.start()
    waiting = asyncio.create_task(house.invoke())
    await eventually(lambda: container.asked)
    house.clock.advance(59)
    await asyncio.sleep(0.005)
    assert not waiting.done()
    house.clock.advance(1)
    got = await waiting
    assert (got.status, got.json["OriginalStatusCode"]) == (424, 0)
    assert got.json["Message"].startswith(
        'Received server error (0) from primary with message "Your invocation timed out while '
        "waiting for a response from container primary. Review the latency metrics for each "
        'container in Amazon CloudWatch, resolve the issue, and try again.". See https://'
    )
    await eventually(lambda: container.lost)


@pytest.mark.parametrize("answer", [None, b"rubbish\r\n\r\n", b"HTTP/1.1 200 OK\r\nConte"])
async def test_a_lost_answer_is_not_asked_for_again(house, variant, answer):
    def answering(asked):
        if answer is None:
            return None
        loop = asyncio.get_running_loop()
        loop.call_later(0.002, container.hang_up)
        return answer

    container = await house.fake(answering)
    house.route(variant(container, container.address + ".nobody"))
    await house.start()
    answers = [await house.invoke() for _ in range(4)]
    assert len(container.asked) == 4
    for got in answers:
        assert (got.status, got.json["OriginalStatusCode"]) == (424, 0)
        assert "could not get a response from the price endpoint" in got.json["Message"]


class Dying:
    """A container by hand: it reads of a request what the test says, and ends when that says so."""

    def __init__(self, family, where):
        self.listener = socket.socket(family)
        self.listener.bind(where)
        self.listener.listen()
        self.listener.setblocking(False)

    async def taken(self):
        """The next connection, once a request has come on it."""
        async with asyncio.timeout(120):
            connection, _ = await asyncio.get_running_loop().sock_accept(self.listener)
            await readable(connection)
        return connection

    def end(self, connection):
        self.listener.close()
        connection.close()


async def readable(connection):
    loop, come = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection, come.set)
    await come.wait()
    loop.remove_reader(connection)


@pytest.mark.parametrize(("read_bytes", "status"), [(0, 200), (20, 200), (10_000, 424)])
async def test_what_a_container_has_not_read_as_it_dies_goes_elsewhere(
    house, variant, echo, read_bytes, status
):
    dying = Dying(socket.AF_UNIX, str(house.home.run / "dying.sock"))
    staying = await house.fake(echo)
    both = variant(
        f"unix:{house.home.run}/dying.sock",
        staying,
        strategy=RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
    )
    house.route(both)
    await house.start()
    asking = [asyncio.create_task(house.invoke()) for _ in range(4)]
    connection = await dying.taken()
    if read_bytes:
        connection.recv(read_bytes)
    dying.end(connection)
    answers = [(await one).status for one in asking]
    assert sorted(answers) == [200, 200, 200, status]


async def test_a_reset_over_tcp_does_not_say_that_nothing_was_read(house, variant):
    dying = Dying(socket.AF_INET, ("127.0.0.1", 0))
    house.route(variant(f"tcp:127.0.0.1:{dying.listener.getsockname()[1]}"))
    await house.start()
    asking = asyncio.create_task(house.invoke())
    dying.end(await dying.taken())
    assert (await asking).status == 424


async def test_a_connection_that_ends_as_a_request_comes_is_not_used(house, variant):
    """Both are seen in one turn of the gateway's loop, the end first."""
    lasting = Dying(socket.AF_UNIX, str(house.home.run / "lasting.sock"))
    house.route(variant(f"unix:{house.home.run}/lasting.sock"))
    await house.start()
    client = socket.create_connection(house.host.split(":"))
    for _ in range(2):
        client.sendall(house.signed())
        connection = await lasting.taken()
        connection.recv(10_000)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n7")
        await readable(client)
        assert client.recv(10_000).startswith(b"HTTP/1.1 200")
        connection.close()
    client.close()
    lasting.listener.close()


async def test_an_instance_that_nobody_listens_for_is_passed_over(house, variant, echo):
    container = await house.fake(echo)
    house.route(variant("unix:/nowhere", container, "tcp:127.0.0.1:1"))
    await house.start()
    for _ in range(6):
        assert (await house.invoke()).status == 200


async def test_a_request_that_was_not_started_goes_elsewhere(house, variant, echo):
    leaving = await house.fake(
        lambda asked: (503, {"x-sagehen-not-started": "1", "connection": "close"}, b"")
    )
    staying = await house.fake(echo)
    house.route(variant(leaving, staying))
    await house.start()
    for _ in range(6):
        assert (await house.invoke()).status == 200
    assert leaving.asked


@pytest.mark.parametrize("places", [(), ("unix:/nowhere",)])
async def test_without_an_instance_the_caller_is_told_to_try_again(house, variant, places):
    house.route(variant(*places))
    await house.start()
    got = await house.invoke()
    assert (got.status, got.headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")
    assert got.headers["retry-after"] == "1"
    assert "Try again" in got.json["Message"]


class TestWhyItEnded:
    """A container that hangs up, and what its agent notes of that."""

    WHY = "the container was ended because it passed the 64 MiB of memory of its instance"

    @pytest.fixture
    async def dying(self, house, variant):
        container = await house.fake(lambda asked: None)
        house.route(variant(container))
        return await house.start()

    def note(self, house, run_id="", why=WHY):
        write_end(house.home.container_end("AllTraffic-0"), run_id, why)

    async def test_is_told_to_the_caller(self, dying):
        self.note(dying)
        got = await dying.invoke()
        assert got.json["OriginalMessage"].endswith(f" capacity or memory. Here: {self.WHY}.")

    async def test_is_waited_for_a_moment(self, dying, monkeypatch):
        monkeypatch.setattr(invocation, "MAX_END_REASON_POLLS", 10_000)
        monkeypatch.setattr(invocation, "END_REASON_POLL_SECONDS", 0.001)
        waiting = asyncio.create_task(dying.invoke())
        done, _ = await asyncio.wait({waiting}, timeout=0.05)
        assert not done
        self.note(dying)
        assert self.WHY in (await waiting).json["OriginalMessage"]

    async def test_is_not_waited_for_where_nothing_is_known(self, dying, monkeypatch):
        monkeypatch.setattr(invocation, "MAX_END_REASON_POLLS", 10_000_000)
        self.note(dying, why=None)
        got = await dying.invoke()
        assert got.json["OriginalMessage"].endswith(" capacity or memory.")

    async def test_is_not_that_of_another_run(self, dying):
        self.note(dying, run_id="of before")
        got = await dying.invoke()
        assert "Here:" not in got.json["OriginalMessage"]
