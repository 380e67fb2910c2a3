import asyncio

import pytest

from sagehen.containers.modelserver.contract import ModelAnswer
from sagehen.containers.modelserver.serving.server import PIECE_BYTES, RECEIVE_SECONDS
from sagehen.containers.modelserver.serving.streaming import AnswerStream
from support.fixtures.modelserver_wires import post, until


async def test_connections_are_kept_alive(setup):
    wire = await setup.connect()
    for body in (b"one", b"", b"three"):
        answer = await wire.ask(post("/echo", body, "Content-Type: text/plain"))
        assert answer.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n")
        assert answer.endswith(b"\r\n\r\n" + body)


async def test_pipelined_answers_leave_in_the_order_of_their_requests(setup):
    wire = await setup.connect()
    wire.writer.write(post("/a", b"") + post("/b", b"") + post("/echo", b"c"))
    first, second = await setup.hands.next(), await setup.hands.next()
    second.respond(ModelAnswer(200, b"b"))
    first.respond(ModelAnswer(200, b"a"))
    assert [(await wire.answer())[-1:] for _ in range(3)] == [b"a", b"b", b"c"]


async def test_a_body_may_come_in_chunks_and_pieces(setup):
    wire = await setup.connect()
    data = (
        b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    for at in range(len(data)):
        wire.writer.write(data[at : at + 1])
        await wire.writer.drain()
    assert (await wire.answer()).endswith(b"\r\n\r\nabcde")


@pytest.mark.parametrize(
    "data",
    [
        post("/echo", b"x" * 1001),
        b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n",
    ],
    ids=["announced", "chunked"],
)
async def test_a_body_over_the_limit_is_413_and_the_connection_ends(setup, data):
    wire = await setup.connect()
    answer = await wire.ask(data)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"over 1000 bytes" in answer
    assert await wire.reader.read() == b""


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 70000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 400_000, b"431"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (post("/echo", b"x", "upgrade: websocket", "connection: upgrade"), b"400"),
    ],
    ids=["no HTTP", "too large a head", "an endless head", "no host", "an upgrade with a body"],
)
async def test_what_is_no_request_is_refused(setup, data, status):
    wire = await setup.connect()
    wire.writer.write(data)
    assert (await wire.answer()).startswith(b"HTTP/1.1 " + status)


async def test_an_offer_to_upgrade_is_declined(setup):
    wire = await setup.connect()
    wire.writer.write(
        b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nframes"
    )
    (await setup.hands.next()).respond(ModelAnswer(200))
    answer = await wire.answer()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"Connection: close" in answer
    assert await wire.reader.read() == b""


async def test_a_refusal_waits_for_the_answers_before_it(setup):
    wire = await setup.connect()
    wire.writer.write(post("/a", b"") + b"nonsense\r\n\r\n")
    held = await setup.hands.next()
    held.respond(ModelAnswer(200, b"a"))
    assert (await wire.answer()).endswith(b"a")
    assert (await wire.answer()).startswith(b"HTTP/1.1 400 ")


async def test_expect_continue(setup):
    wire = await setup.connect()
    wire.writer.write(
        b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n"
    )
    assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (await wire.ask(b"ok")).endswith(b"ok")


async def test_connection_close_is_honoured(setup):
    wire = await setup.connect()
    answer = await wire.ask(post("/echo", b"x", "connection: close"))
    assert b"Connection: close" in answer
    assert await wire.reader.read() == b""


async def test_a_bug_is_an_answer_too(setup):
    wire = await setup.connect()
    assert (await wire.ask(post("/broken", b""))).startswith(b"HTTP/1.1 500 ")
    assert (await wire.ask(post("/echo", b""))).startswith(b"HTTP/1.1 200 ")


async def test_headers_from_the_models_code_cannot_forge_a_head(setup):
    wire = await setup.connect()
    wire.writer.write(post("/a", b""))
    request = await setup.hands.next()
    request.respond(ModelAnswer(200, b"", "a\r\nx: y", (("b", "c\r\nd: e"),)))
    answer = await wire.answer()
    assert b"content-type: a  x: y\r\nb: c  d: e\r\n" in answer


async def test_a_client_that_goes_away_abandons_its_requests(setup):
    wire = await setup.connect()
    wire.writer.write(post("/a", b""))
    request = await setup.hands.next()
    wire.writer.close()
    await wire.writer.wait_closed()
    await until(lambda: not setup.server.connections)
    assert request.abandoned
    request.respond(ModelAnswer(200))


async def test_ending_finishes_what_was_begun_and_turns_the_rest_away(setup):
    busy, idle = await setup.connect(), await setup.connect()
    busy.writer.write(post("/a", b""))
    begun = await setup.hands.next()
    assert (await idle.ask(post("/echo", b"x"))).endswith(b"x")
    drain = asyncio.create_task(setup.server.drain())
    await asyncio.sleep(0)
    answer = await idle.ask(post("/echo", b"late"))
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"x-sagehen-not-started: 1\r\n" in answer
    assert b"Connection: close\r\n" in answer
    assert not drain.done()
    begun.respond(ModelAnswer(200, b"done"))
    assert (await busy.answer()).endswith(b"done")
    await drain
    assert not setup.server.connections


async def test_ending_does_not_wait_for_what_nobody_waits_for(setup):
    gone, waiting = await setup.connect(), await setup.connect()
    gone.writer.write(post("/a", b""))
    given_up = await setup.hands.next()
    waiting.writer.write(post("/b", b""))
    begun = await setup.hands.next()
    drain = asyncio.create_task(setup.server.drain())
    gone.writer.close()
    await until(lambda: given_up.abandoned)
    assert not drain.done()
    begun.respond(ModelAnswer(200, b"done"))
    await drain
    assert given_up.answer is None


async def test_a_request_that_does_not_get_on_is_dropped(setup):
    stuck, idle = await setup.connect(), await setup.connect()
    assert (await idle.ask(post("/echo", b"x"))).endswith(b"x")
    assert (await stuck.ask(post("/echo", b"x"))).endswith(b"x")
    stuck.writer.write(b"POST /echo HTTP/1.1\r\n")
    await until(lambda: any(each.is_receiving for each in setup.server.connections))
    setup.clock.seconds += RECEIVE_SECONDS + 1
    setup.server.sweep()
    assert (await stuck.answer()).startswith(b"HTTP/1.1 408 ")
    assert await stuck.reader.read() == b""
    assert (await idle.ask(post("/echo", b"y"))).endswith(b"y")
    await setup.server.drain()


async def test_a_large_request_has_its_time_for_each_piece(setup):
    setup.server.max_body_bytes = 3 * PIECE_BYTES
    wire = await setup.connect()
    head = post("/echo", b"", "x: y").replace(b"length: 0", b"length: %d" % (2 * PIECE_BYTES))
    for part in (head, bytes(PIECE_BYTES), bytes(PIECE_BYTES - 1)):
        wire.writer.write(part)
        await wire.writer.drain()
        setup.server.sweep()
        setup.clock.seconds += RECEIVE_SECONDS - 1
    wire.writer.write(b"x")
    assert (await wire.answer()).endswith(b"x")
    await setup.server.drain()


async def test_one_of_the_largest_size_is_taken_and_no_more_at_once(setup, monkeypatch):
    monkeypatch.setattr("sagehen.containers.modelserver.serving.server.MAX_HELD_BYTES", 500)
    first, second = await setup.connect(), await setup.connect()
    first.writer.write(post("/a", bytes(1000)))
    held = await setup.hands.next()
    assert (await second.ask(post("/a", b"x"))).startswith(b"HTTP/1.1 503 ")
    held.respond(ModelAnswer(200))
    assert (await first.answer()).startswith(b"HTTP/1.1 200 ")


async def test_an_answer_over_its_bound_is_an_error(setup):
    setup.server.max_answer_bytes = 10
    wire = await setup.connect()
    assert (await wire.ask(post("/echo", bytes(10)))).startswith(b"HTTP/1.1 200 ")
    answer = await wire.ask(post("/echo", bytes(11)))
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"has at least 11 bytes, which is over 10: TS_MAX_RESPONSE_SIZE" in answer
    assert (await wire.ask(post("/echo", b"x"))).endswith(b"x")


async def test_a_stream_over_its_bound_breaks_off(setup):
    setup.server.max_answer_bytes = 10
    abandoned = []
    wire = await setup.connect()
    wire.writer.write(post("/a", b""))
    stream = AnswerStream(b"12345", lambda _: None, lambda: abandoned.append(True))
    (await setup.hands.next()).respond(ModelAnswer(200, stream=stream))
    stream.add(b"67890")
    stream.add(b"!")
    said = await wire.reader.read()
    assert said.endswith(b"5\r\n67890\r\n")
    assert abandoned == [True]


async def answered(setup, wire):
    assert (await wire.ask(post("/echo", b"x"))).endswith(b"x")
    wire.writer.close()


async def closed_by_us(setup, wire):
    await wire.ask(post("/echo", b"x", "connection: close"))
    assert await wire.reader.read() == b""


async def left_midway(setup, wire):
    wire.writer.write(post("/echo", b"x")[:-1])
    await until(lambda: any(each.is_receiving for each in setup.server.connections))
    wire.writer.transport.abort()


async def left_while_it_waits(setup, wire):
    wire.writer.write(post("/a", b""))
    await setup.hands.next()
    wire.writer.transport.abort()


async def streamed(setup, wire):
    wire.writer.write(post("/a", b"", "connection: close"))
    stream = AnswerStream(b"a", lambda _: None, lambda: None)
    (await setup.hands.next()).respond(ModelAnswer(200, stream=stream))
    stream.add(b"b")
    stream.end(True)
    assert (await wire.reader.read()).endswith(b"0\r\n\r\n")


async def aborted(setup, wire):
    assert (await wire.ask(post("/echo", b"x"))).endswith(b"x")
    setup.server.abort()
    assert await wire.reader.read() == b""


@pytest.mark.parametrize(
    "end",
    [answered, closed_by_us, left_midway, left_while_it_waits, streamed, aborted],
)
async def test_a_connection_leaves_nothing_to_the_collector(setup, kept, end):
    for _ in range(3):
        await end(setup, await setup.connect())
    await until(lambda: not setup.server.connections)
    assert kept() == {}


@pytest.mark.parametrize("status", [204, 304])
async def test_what_has_no_body_is_not_followed_by_one(setup, status):
    wire = await setup.connect()
    wire.writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    (await setup.hands.next()).respond(ModelAnswer(status, b"a body all the same"))
    head = await wire.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    answer = await wire.ask(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi")
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_who_holds_too_much_already_says_so(setup, monkeypatch):
    monkeypatch.setattr("sagehen.containers.modelserver.serving.server.MAX_HELD_BYTES", 3)
    setup.server.max_body_bytes = 2  # What one request may be fits at any time.
    one, two = await setup.connect(), await setup.connect()
    ask = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi"
    one.writer.write(ask)
    held = await setup.hands.next()
    answer = await two.ask(ask)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"more than 3 bytes together" in answer
    held.respond(ModelAnswer(200))
    await one.answer()
    two.writer.write(ask)
    (await setup.hands.next()).respond(ModelAnswer(200))
    assert (await two.answer()).startswith(b"HTTP/1.1 200 ")


async def test_trailers_are_no_headers_of_the_request(setup):
    wire = await setup.connect()
    wire.writer.write(
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-type: a/b\r\ntransfer-encoding: chunked\r\n\r\n"
        b"2\r\nhi\r\n0\r\ncontent-type: c/d\r\nx-late: 1\r\n\r\n"
    )
    request = await setup.hands.next()
    assert request.header(b"content-type") == "a/b"
    assert request.header(b"x-late") == ""
    request.respond(ModelAnswer(200))
    await wire.answer()
