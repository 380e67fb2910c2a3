"""What a container may send, and how much of it."""

import asyncio
import socket
from types import SimpleNamespace

import pytest

from sagehen.http1.client import MAX_HEAD_BYTES, ClientConnection

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def answered(house, variant):
    """`await answered(*pieces)`: what becomes of an answer of these pieces."""

    async def answer(*pieces):
        async def container(head, reader, writer):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            await reader.read()

        house.route(variant(await house.raw(container, house.home.run / "c.sock")))
        await house.start()
        return await house.invoke()

    return answer


@pytest.mark.parametrize(
    "endless",
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"a" * 1000 + b"\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-A: ", b"a" * 1000),
        (HEAD + b"1\r\nx\r\n0\r\n", b"X-A: " + b"a" * 1000 + b"\r\n"),
        (HEAD + b"1\r\nx\r\n0\r\nX-A: ", b"a" * 1000),
        (HEAD + b"1;", b"a" * 1000),
    ],
    ids=["head", "line", "trailers", "trailer", "extension"],
)
async def test_what_is_no_body_has_a_bound(answered, endless):
    begun, more = endless
    times = 4 * MAX_HEAD_BYTES // len(more)
    got = await answered(begun, *[more] * times)
    assert (got.status, got.headers["x-amzn-errortype"]) == (424, "ModelError")


async def test_a_body_has_none_however_it_is_cut(answered):
    body = b"".join(b"1\r\n%b\r\n" % (b"x") for _ in range(200_000)) + b"0\r\nX-A: b\r\n\r\n"
    got = await answered(HEAD, *[body[at : at + 7919] for at in range(0, len(body), 7919)])
    assert (got.status, got.body) == (200, b"x" * 200_000)


async def test_trailers_are_no_headers(answered):
    trailers = b"Content-Type: text/html\r\nX-Amzn-SageMaker-Custom-Attributes: a\r\n\r\n"
    got = await answered(HEAD + b"1\r\nx\r\n0\r\n" + trailers)
    assert (got.status, got.body) == (200, b"x")
    assert not {"content-type", "x-amzn-sagemaker-custom-attributes"} & set(got.headers)


class Told:
    """A receiver that notes what it is told."""

    def __init__(self):
        self.events = []

    def answer_interim(self, status, headers):
        self.events.append(status)

    def answer_begins(self, status, headers, length):
        self.events.append((status, length))

    def answer_continues(self, data):
        self.events.append(data)

    def answer_ends(self):
        self.events.append("ends")

    def answer_breaks(self):
        self.events.append("breaks")

    def upstream_full(self): ...

    def upstream_drained(self): ...


@pytest.fixture
def refused():
    """`await refused(answer)`: what is told of a request whose body is still being written when the
    other side has sent `answer` and closed the connection; and the connection."""

    async def ask(answer):
        ours, theirs = socket.socketpair()
        lost = asyncio.Event()
        loop = asyncio.get_running_loop()
        _, upstream = await loop.create_unix_connection(
            lambda: ClientConnection(lambda _: None, lambda _: lost.set(), is_local=True), sock=ours
        )
        told = Told()
        upstream.begin(told)
        upstream.write(b"PUT / HTTP/1.1\r\nContent-Length: 9\r\n\r\n")
        theirs.setblocking(False)
        head = await loop.sock_recv(theirs, 20)
        assert head == b"PUT / HTTP/1.1\r\nCont", "The rest stays unread, as an unread body does."
        theirs.sendall(answer)
        theirs.close()
        upstream.write(b"too late!")
        await lost.wait()
        return told.events, upstream

    return ask


async def test_the_answer_is_read_although_the_body_is_refused(refused):
    told, upstream = await refused(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
    assert told == [(403, 2), b"no", "ends"]
    assert not upstream.broken


async def test_after_an_interim_answer_too(refused):
    told, _ = await refused(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 501 No\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"1\r\nx\r\n0\r\n\r\n"
    )
    assert told == [100, (501, None), b"x", "ends"]


async def test_without_an_answer_the_request_was_not_read(refused):
    told, upstream = await refused(b"")
    assert told == ["breaks"]
    assert upstream.broken
    assert upstream.not_begun


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 403 Forbidden\r\nContent-Le", b"HTTP/1.1 403 No\r\nContent-Length: 3\r\n\r\nno"],
)
async def test_half_an_answer_breaks_off(refused, answer):
    told, upstream = await refused(answer)
    assert told[-1] == "breaks"
    assert upstream.broken
    assert not upstream.not_begun


def test_a_reset_of_an_encrypted_connection_is_told():
    """Where uvloop knows the socket no more; else the request would wait for ever."""
    lost, told = [], Told()
    connection = ClientConnection(lambda _: None, lost.append)
    connection.connection_made(SimpleNamespace(get_extra_info=lambda name: None))
    connection.begin(told)
    connection.connection_lost(ConnectionResetError())
    assert told.events == ["breaks"]
    assert lost == [connection]
    assert not connection.not_begun, "a machine that died may have begun it"


@pytest.mark.parametrize(("rest", "is_free"), [(b"", False), (b"half", False), (b"halves", True)])
async def test_a_connection_whose_request_is_not_whole_is_not_used_again(rest, is_free):
    ours, theirs = socket.socketpair()
    freed = []
    _, upstream = await asyncio.get_running_loop().create_unix_connection(
        lambda: ClientConnection(freed.append, lambda _: None), sock=ours
    )
    told = Told()
    upstream.send(told, b"/invocations", b"", [b"four"], 10)
    if rest:
        upstream.write(rest)

    upstream.data_received(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
    is_closed = upstream.transport.is_closing()
    upstream.transport.abort()
    theirs.close()

    assert told.events == [(413, 0), "ends"]
    assert freed == ([upstream] if is_free else [])
    assert is_closed is not is_free
