"""The container's end of a link: its handshake, its requests and what ends it."""

import pytest

from sagehen.containers.modelserver.contract import ModelAnswer
from sagehen.containers.modelserver.serving import link_requests
from sagehen.link.begun_marks import BegunMarks
from sagehen.link.frames import (
    ANSWER,
    HELLO,
    LARGE_ANSWER,
    MAX_HEAD_BYTES,
    PREFACE,
    SLOTS,
    VERSION,
    WELCOME,
    encode_frame,
    encode_refusal,
    encode_settings,
    read_settings,
)
from support.caller import answers_in
from support.link_gateway import Gateway, Stream, begin, data, request
from support.links import settle


@pytest.fixture
async def gateway(tmp_path):
    return Gateway(tmp_path).greet()


@pytest.fixture
async def stranger(tmp_path):
    """It has not said HELLO."""
    return Gateway(tmp_path)


# The first bytes, and the handshake


async def test_a_socket_takes_links_and_http(tmp_path):
    http = Gateway(tmp_path)
    for at in range(len(get := b"GET /ping HTTP/1.1\r\nhost: x\r\n\r\n")):
        http.send(get[at : at + 1])
    http.requests[0].respond(ModelAnswer(200, b"healthy"))
    assert [answer.body for answer in answers_in(http.pipe.written)] == [b"healthy"]
    link = Gateway(tmp_path)
    hello = PREFACE + encode_settings(HELLO, {"versions": [VERSION], "begun": None})
    for at in range(len(hello)):
        link.send(hello[at : at + 1])
    await settle()
    assert [frame[0] for frame in link.frames] == [WELCOME, SLOTS]


@pytest.mark.parametrize("size", range(len(PREFACE)))
async def test_a_connection_may_end_before_it_said_what_it_is(stranger, size):
    stranger.send(PREFACE[:size])
    assert len(stranger.server.connections) == 1
    stranger.pipe.abort()
    await settle()
    assert not stranger.server.connections


async def test_the_welcome_names_the_version_and_whether_there_are_marks(gateway, tmp_path):
    await settle()
    welcome, slots = gateway.frames
    assert read_settings(welcome[5]) == {"version": VERSION, "marks": False}
    assert slots == (SLOTS, 0, 7, 0, b"", b"")
    marks = BegunMarks(tmp_path / "marks")
    other = Gateway(tmp_path).greet("marks")
    await settle()
    assert read_settings(other.frames[0][5])["marks"] is True
    marks.close()


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (encode_settings(HELLO, {"versions": [VERSION + 1]}), "run the same version of Sagehen"),
        (encode_settings(HELLO, {"versions": VERSION}), "versions"),
        (encode_settings(HELLO, {}), "versions None"),
        (encode_settings(HELLO, {"versions": ["\ud800"]}), "versions"),
        (encode_frame(HELLO, 0, b"", b"[" * 60_000), "not JSON"),
        (encode_frame(HELLO, 0, b"", b"7"), "no JSON object"),
        (request(1), "must be HELLO"),
        (data(1, b"x"), "must be HELLO"),
        (encode_refusal("reason"), "reason"),
        (bytes(16), "no frame of kind 0"),
    ],
    ids=[
        "newer",
        "no list",
        "none",
        "surrogate",
        "deep",
        "number",
        "request first",
        "data first",
        "refusal",
        "no frame",
    ],
)
async def test_another_handshake_is_refused(stranger, first, message):
    stranger.send(PREFACE, first)
    await settle()
    assert message in stranger.refusal
    assert stranger.pipe.is_lost
    assert not stranger.server.connections
    assert not stranger.requests


async def test_a_second_hello_is_refused(gateway):
    gateway.send(encode_settings(HELLO, {"versions": [VERSION]}))
    await settle()
    assert "twice" in gateway.refusal


@pytest.mark.parametrize("name", ["../marks", "none", 7, ["marks"]])
async def test_marks_that_cannot_be_opened_are_none(tmp_path, name):
    (tmp_path / "folder").mkdir()
    marks = BegunMarks(tmp_path / "marks")
    gateway = Gateway(tmp_path / "folder").greet(name)
    gateway.send(request(1))
    gateway.requests[0].mark_begun()
    await settle()
    assert read_settings(gateway.frames[0][5])["marks"] is False
    marks.close()


# Requests and answers


async def test_requests_are_answered_in_any_order_and_one_write(gateway):
    await settle()
    gateway.send(*(request(number, b"%d" % number) for number in (1, 2, 3)))
    first, second, third = gateway.requests
    assert (first.method, first.path, first.body) == ("POST", "/invocations", b"1")
    assert first.header(b"accept") == "text/csv"
    before = gateway.pipe.writes
    third.respond(ModelAnswer(200, b"c", "text/csv", (("x-a", "b\r\nc"),)))
    first.respond(ModelAnswer(500, b"a"))
    second.respond(ModelAnswer(204, b"not sent"))
    await settle()
    assert gateway.pipe.writes == before + 1
    assert gateway.answers() == {3: (200, b"c"), 1: (500, b"a"), 2: (204, b"")}
    lines = gateway.of(ANSWER)[0][4]
    assert lines == b"content-type: text/csv\r\nx-a: b  c\r\n"
    assert gateway.has_nothing_left


async def test_a_path_and_headers_are_parsed_each_once(gateway):
    gateway.send(request(1), request(2), request(3, head=b"/models/a/invoke\n"))
    one, same, other = gateway.requests
    assert one.headers is same.headers
    assert (other.path, dict(other.headers)) == ("/models/a/invoke", {})


async def test_heads_that_differ_take_bounded_memory(gateway, monkeypatch):
    monkeypatch.setattr(link_requests, "MAX_KNOWN_HEADS", 10)
    for number in range(100):
        gateway.send(request(number, head=b"/x\na: %d\r\n" % number))
    gateway.send(request(100, head=b"/x\na: %b\r\n" % bytes(5000)))
    assert len(gateway.connection._known_heads) <= 10


async def test_slots_are_reported_with_answers_when_they_have_changed(gateway):
    await settle()
    gateway.send(request(1), request(2))
    for one, slots in zip(gateway.requests, (7, 9), strict=True):
        gateway.slots = slots
        one.respond(ModelAnswer(200))
        await settle()
    assert [frame[0] for frame in gateway.frames[2:]] == [ANSWER, ANSWER, SLOTS]
    assert gateway.frames[-1][2] == 9


@pytest.mark.parametrize("first", [request(1), begin(1, 100)], ids=["small", "large"])
@pytest.mark.parametrize("second", [request(1), begin(1, 100)], ids=["small", "large"])
async def test_a_number_in_use_ends_the_link(gateway, first, second):
    gateway.send(first, second)
    await settle()
    assert "number 1 is in use" in gateway.refusal
    assert gateway.has_nothing_left


async def test_the_number_of_an_answer_that_is_being_sent_is_in_use(gateway):
    gateway.send(request(1))
    gateway.requests[0].respond(ModelAnswer(200, stream=Stream(b"first")))
    gateway.send(request(1))
    await settle()
    assert "number 1 is in use" in gateway.refusal
    assert gateway.has_nothing_left


@pytest.mark.parametrize("kind", [WELCOME, ANSWER, LARGE_ANSWER, SLOTS])
async def test_a_gateway_sends_nothing_that_containers_send(gateway, kind):
    gateway.send(request(1), encode_frame(kind, 1))
    await settle()
    assert f"must not send frames of kind {kind}" in gateway.refusal
    assert gateway.has_nothing_left


async def test_a_server_that_drains_begins_nothing(gateway):
    gateway.server.draining = True
    gateway.send(request(1))
    await settle()
    ((_, _, _, status, lines, _),) = gateway.of(ANSWER)
    assert (status, b"x-sagehen-not-started: 1\r\n" in lines) == (503, True)


async def test_an_answer_with_too_many_header_lines_is_an_error_and_no_end(gateway):
    lines = (("x-a", "b" * MAX_HEAD_BYTES),)
    gateway.send(request(1), request(2))
    gateway.requests[0].respond(ModelAnswer(200, b"4", headers=lines))
    stream = Stream(b"first")
    gateway.requests[1].respond(ModelAnswer(200, headers=lines, stream=stream))
    await settle()
    assert [status for status, _ in gateway.answers().values()] == [500, 500]
    assert b"header lines" in gateway.answers()[1][1]
    assert stream.was_abandoned
    assert not gateway.pipe.is_closing()
    assert gateway.has_nothing_left
