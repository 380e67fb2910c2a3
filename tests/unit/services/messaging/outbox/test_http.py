"""Deliveries to a real HTTP receiver: what it answers decides whether they are tried again."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator

import pytest

from sagehen.services.messaging.outbox.destinations import DeliveryResult, HttpRequest
from sagehen.services.messaging.outbox.http import HttpSender, threaded_resolver


class Receiver:
    """Answers with `answer`, or not at all if it is empty."""

    def __init__(self) -> None:
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                self.bodies.append(await reader.readexactly(int(line.partition(b":")[2])))
        if self.answer:
            writer.write(self.answer)
            await writer.drain()
        else:
            await reader.read()
        writer.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/path"
    async with server:
        yield receiver


@pytest.fixture
async def sender() -> AsyncIterator[HttpSender]:
    sender = HttpSender(timeout_seconds=20)
    yield sender
    await sender.close()


def result_of(status: int) -> DeliveryResult:
    return DeliveryResult.ACCEPTED if status == 200 else DeliveryResult.REFUSED


async def test_a_request_arrives_as_it_was_composed(receiver: Receiver, sender: HttpSender) -> None:
    request = HttpRequest(
        url=receiver.url, method="PUT", headers={"X-A": "b"}, body=b"text", result_of=result_of
    )
    answer = await sender.send(request)
    assert (answer.result, answer.reason) == (DeliveryResult.ACCEPTED, "status 200")
    assert receiver.heads[0].startswith(b"PUT /path HTTP/1.1\r\n")
    assert b"X-A: b\r\n" in receiver.heads[0]
    assert receiver.bodies == [b"text"]


async def test_a_redirect_is_not_followed(receiver: Receiver, sender: HttpSender) -> None:
    location = receiver.url.encode()
    receiver.answer = b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % location
    answer = await sender.send(HttpRequest(url=receiver.url, body=b"", result_of=result_of))
    assert (answer.result, answer.reason) == (DeliveryResult.REFUSED, "status 302")
    assert len(receiver.heads) == 1


async def test_a_body_that_breaks_off_changes_nothing(
    receiver: Receiver, sender: HttpSender
) -> None:
    receiver.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf"
    answer = await sender.send(HttpRequest(url=receiver.url, body=b"", result_of=result_of))
    assert answer.result is DeliveryResult.ACCEPTED


async def test_a_receiver_that_is_silent_fails_in_time(receiver: Receiver) -> None:
    receiver.answer = b""
    sender = HttpSender(timeout_seconds=0.05)
    answer = await sender.send(HttpRequest(url=receiver.url, body=b"", result_of=result_of))
    await sender.close()
    assert (answer.result, answer.reason) == (DeliveryResult.FAILED, "no answer in time")


async def test_a_closed_port_or_a_bad_url_may_succeed_later(sender: HttpSender) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}/", "http://[bad/", "nonsense"):
        answer = await sender.send(HttpRequest(url=url, body=b"", result_of=result_of))
        assert answer.result is DeliveryResult.FAILED
        assert answer.reason


@pytest.mark.parametrize(
    "bad_answer",
    [
        pytest.param(b"rubbish\r\n\r\n", id="no HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", id="no length"),
    ],
)
async def test_a_reason_has_no_url_as_that_may_have_secrets(
    receiver: Receiver, sender: HttpSender, bad_answer: bytes
) -> None:
    """Reasons go into the log, and into dead-letter queues."""
    receiver.answer = bad_answer
    for url in (receiver.url, "http://a\\b/", "http://\u0301/"):
        request = HttpRequest(url=f"{url}?token=hidden", body=b"", result_of=result_of)
        answer = await sender.send(request)
        assert answer.result is DeliveryResult.FAILED
        assert answer.reason
        assert "hidden" not in answer.reason


async def test_addresses_are_found_outside_of_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[str] = []

    def find(host: str, port: int, family: int, kind: int) -> list[object]:
        threads.append(threading.current_thread().name)
        return [(socket.AF_INET, kind, 6, "", ("192.0.2.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", find)
    resolver = threaded_resolver()
    (address,) = await resolver.resolve("host.test", 80)
    await resolver.close()
    assert (address["hostname"], address["host"], address["port"]) == ("host.test", "192.0.2.1", 80)
    assert threads[0].startswith("resolver")


async def test_an_unknown_name_is_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise socket.gaierror("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    resolver = threaded_resolver()
    with pytest.raises(OSError, match="no such name"):
        await resolver.resolve("host.test")
    await resolver.close()
