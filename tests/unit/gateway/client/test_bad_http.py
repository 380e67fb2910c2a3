"""HTTP/1.1 cut into any pieces, broken in every way, and made to be misread.

The connections are the gateway's own; only their sockets are not, so that each piece comes as it
was cut. Every caller stays until it is cut off: nothing may hang.
"""

import asyncio
import itertools
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.base.settings import Settings
from sagehen.http1.request_head import MAX_HEADERS, MAX_TARGET_BYTES
from support.caller import Answer, Caller, answers_in, cut, cuts, some

BODY = b"1,2,3"
MAX_HEAD_BYTES: int = Settings.model_fields["max_head_bytes"].default
SMUGGLED = b"GET /_sagehen/internal/smuggled HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.fixture
async def served(house, variant, echo, caplog):
    """A house whose container echoes; afterwards nothing must have gone wrong unnoticed."""
    unhandled = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: unhandled.append(what))
    house.container = await house.fake(echo)
    house.route(variant(house.container))
    yield await house.start()
    assert unhandled == []
    assert [said for said in caplog.records if said.levelno >= logging.ERROR] == []


async def until(holds) -> None:
    async with asyncio.timeout(120):
        for turn in itertools.count():
            if holds():
                return
            await asyncio.sleep(0 if turn < 200 else 0.001)


async def tell(house, pieces: list[bytes]) -> list[Answer]:
    """Send `pieces` on a connection of its own, and stay until the gateway ends it."""
    server = house.gateway._server
    connection = server.make_connection()
    caller = Caller(connection)

    def is_settled() -> bool:
        line = connection._unanswered
        return caller.has_ended or not line or not line[-1].is_whole

    for piece in pieces:
        await until(lambda: not caller.paused or caller.has_closed)
        if caller.has_closed:
            break
        connection.data_received(piece)
    await until(is_settled)
    for _ in range(100):
        if caller.has_closed:
            break
        house.clock.advance(5)
        server.sweep()
        await asyncio.sleep(0)
    assert caller.has_closed, "it hangs"
    connection.connection_lost(None)
    return answers_in(caller.received)


def chunked(signed: bytes, *chunks: bytes, coding: bytes = b"Transfer-Encoding: chunked") -> bytes:
    """A signed request whose body comes as `chunks`, each as it is."""
    head, _, body = signed.partition(b"\r\n\r\n")
    return head.replace(b"Content-Length: %d" % len(body), coding) + b"\r\n\r\n" + b"".join(chunks)


def with_field(signed: bytes, *lines: bytes) -> bytes:
    head, _, body = signed.partition(b"\r\n\r\n")
    return b"\r\n".join([head, *lines]) + b"\r\n\r\n" + body


GOOD_CHUNKS = (
    b"2\r\n1,\r\n",
    b'3;name=value;other="quoted"\r\n2,3\r\n',
    b"0\r\nTrailer: x\r\n\r\n",
)


@pytest.mark.parametrize("kind", ["length", "chunks"])
async def test_a_request_may_be_cut_anywhere(served, kind):
    request = served.signed(BODY)
    if kind == "chunks":
        request = chunked(request, *GOOD_CHUNKS)
    for place in range(len(request)):
        (answer,) = await tell(served, cut(request, [place]))
        assert (answer.status, answer.body) == (200, BODY)
    assert {asked.body for asked in served.container.asked} == {BODY}


@some
@given(st.lists(st.tuples(st.binary(max_size=40), st.booleans()), min_size=1, max_size=5), cuts)
async def test_pipelined_requests_are_answered_in_order_however_they_are_cut(served, wanted, where):
    data = b""
    for body, in_chunks in wanted:
        signed = served.signed(body)
        pieces = [b"%x\r\n%b\r\n" % (len(body), body)] if body else []
        data += chunked(signed, *pieces, b"0\r\n\r\n") if in_chunks else signed
    answers = await tell(served, cut(data, where))
    assert [answer.status for answer in answers] == [200] * len(wanted)
    assert [answer.body for answer in answers] == [body for body, _ in wanted]


LENGTH = b"Content-Length: %d" % len(BODY)


def instead_of(old: bytes, new: bytes):
    """Spoils a request by a replacement; `old` must be there."""

    def spoil(request: bytes) -> bytes:
        assert old in request
        return request.replace(old, new, 1)

    return spoil


def length(said: bytes):
    return instead_of(LENGTH, b"Content-Length:" + said)


def coding(said: bytes, *chunks: bytes):
    return lambda request: chunked(request, *(chunks or GOOD_CHUNKS), coding=said)


def version(said: bytes):
    return instead_of(b" HTTP/1.1", said)


def line(said: bytes):
    return lambda request: with_field(request, said)


def body(*chunks: bytes):
    return lambda request: chunked(request, *chunks)


CHUNKED = b"Transfer-Encoding: chunked"
BAD_FRAMING = {
    "length-then-coding": (line(CHUNKED), 400),
    "coding-then-length": (instead_of(LENGTH, CHUNKED + b"\r\n" + LENGTH), 400),
    "length-and-identity": (line(b"Transfer-Encoding: identity"), 400),
    "length-twice": (line(LENGTH), 400),
    "two-lengths": (line(b"Content-Length: 0"), 400),
    "length-list": (length(b" 5, 5"), 400),
    "length-negative": (length(b" -5"), 400),
    "length-signed": (length(b" +5"), 400),
    "length-hexadecimal": (length(b" 0x5"), 400),
    "length-with-space": (length(b" 5 0"), 400),
    "length-with-underscore": (length(b" 1_0"), 400),
    "length-empty": (length(b""), 400),
    "length-of-other-digits": (length(" ٥".encode()), 400),
    "length-overflow": (length(b" 18446744073709551621"), 400),
    "length-enormous": (length(b" 18446744073709551615"), 400),
    "length-before-colon": (instead_of(LENGTH, b"Content-Length : 5"), 400),
    "coding-before-colon": (coding(b"Transfer-Encoding : chunked"), 400),
    "coding-twice": (coding(CHUNKED + b"\r\n" + CHUNKED), 400),
    "coding-and-identity": (coding(CHUNKED + b"\r\nTransfer-Encoding: identity"), 400),
    "coding-not-last": (coding(CHUNKED + b", identity"), 400),
    "coding-empty": (coding(b"Transfer-Encoding:"), 400),
    "coding-identity": (coding(b"Transfer-Encoding: identity"), 501),
    "coding-gzip": (coding(b"Transfer-Encoding: gzip, chunked"), 501),
    "coding-alike": (coding(b"Transfer-Encoding: xchunked"), 501),
    "coding-with-parameter": (coding(CHUNKED + b";a=b"), 501),
    "coding-quoted": (coding(b'Transfer-Encoding: "chunked"'), 501),
    "coding-after-comma": (coding(b"Transfer-Encoding: ,chunked"), 501),
    "coding-after-tab-feed": (coding(b"Transfer-Encoding: \x0bchunked"), 400),
    "coding-folded": (coding(b"Transfer-Encoding:\r\n chunked"), 400),
    "coding-with-tab-twice": (coding(CHUNKED + b"\t\r\n" + CHUNKED), 501),
    "coding-with-tab-then-length": (coding(CHUNKED + b"\t\r\n" + LENGTH), 400),
    "length-then-coding-with-tab": (line(CHUNKED + b"\t"), 400),
    "coding-of-http-1.0": (lambda r: version(b" HTTP/1.0")(chunked(r, *GOOD_CHUNKS)), 400),
    "coding-and-bad-chunks": (coding(b"Transfer-Encoding: gzip, chunked", b"no chunk"), 501),
}
BAD_CHUNKS = {
    "size-missing": (body(b"\r\n1,\r\n"), 400),
    "size-negative": (body(b"-1\r\n1\r\n"), 400),
    "size-prefixed": (body(b"0x2\r\n1,\r\n"), 400),
    "size-not-hexadecimal": (body(b"g\r\n1,\r\n"), 400),
    "size-with-space": (body(b"2 \r\n1,\r\n"), 400),
    "size-overflow": (body(b"fffffffffffffffff\r\n1,\r\n"), 400),
    "size-too-small": (body(b"1\r\n1,\r\n"), 400),
    "size-with-bare-lf": (body(b"2\n1,\n0\n\n"), 400),
    "size-with-bare-cr": (body(b"2\r1,\r\n"), 400),
    "extension-with-nul": (body(b"2;\0\r\n1,\r\n"), 400),
    "extension-with-bare-lf": (body(b"2;a\n1,\r\n"), 400),
    "extension-over-two-lines": (body(b'2;a="b\r\n"\r\n1,\r\n'), 400),
    "data-without-end": (body(b"2\r\n1,0\r\n\r\n"), 400),
    "trailer-length": (body(b"2\r\n1,\r\n0\r\nContent-Length: 7\r\n\r\n"), 400),
    "trailer-coding": (body(b"2\r\n1,\r\n0\r\nTransfer-Encoding: gzip\r\n\r\n"), 400),
    "trailer-folded": (body(b"2\r\n1,\r\n0\r\nA: b\r\n c\r\n\r\n"), 400),
}
BAD_HEADS = {
    "folded": (line(b"X-A: b\r\n c"), 400),
    "folded-by-tab": (line(b"X-A: b\r\n\tc"), 400),
    "folded-first": (version(b" HTTP/1.1\r\n X-A: b"), 400),
    "nul-in-value": (line(b"X-A: b\0c"), 400),
    "nul-in-name": (line(b"X\0A: b"), 400),
    "nul-in-target": (instead_of(b"price", b"pri\0ce"), 400),
    "bare-cr-in-value": (line(b"X-A: b\rX-B: c"), 400),
    "bare-cr-at-end": (line(b"X-A: b\r"), 400),
    "bare-lf-in-value": (line(b"X-A: b\nX-B: c"), 400),
    "bare-lf-only": (lambda request: request.replace(b"\r\n", b"\n"), 400),
    "bare-lf-after-version": (version(b" HTTP/1.1\nX-A: b"), 400),
    "vertical-tab-in-value": (line(b"X-A: b\x0bc"), 400),
    "delete-in-value": (line(b"X-A: \x7f"), 400),
    "no-colon": (line(b"X-A"), 400),
    "no-name": (line(b": b"), 400),
    "no-host": (instead_of(b"Host: ", b"X-Host: "), 400),
    "host-twice": (line(b"host: elsewhere"), 400),
    "space-in-name": (line(b"X A: b"), 400),
    "other-letter-in-name": (line("Ä: b".encode()), 400),
    "other-letter-in-target": (instead_of(b"price", "prïce".encode()), 400),
    "tab-in-target": (instead_of(b"price", b"pri\tce"), 400),
    "space-in-target": (instead_of(b"price", b"pri ce"), 400),
    "method-in-small-letters": (instead_of(b"POST", b"post"), 400),
    "method-unknown": (instead_of(b"POST", b"BREW"), 400),
    "method-connect": (instead_of(b"POST", b"CONNECT"), 501),
    "target-of-a-proxy": (instead_of(b"POST ", b"POST http://elsewhere"), 400),
    "target-with-fragment": (instead_of(b"invocations", b"invocations#x"), 400),
    "target-with-fragment-in-query": (instead_of(b"invocations", b"invocations?x#y"), 400),
    "target-star": (instead_of(b"/endpoints/price/invocations", b"*"), 400),
    "version-0.9": (version(b" HTTP/0.9"), 505),
    "version-0.9-unsaid": (version(b""), 505),
    "version-1.2": (version(b" HTTP/1.2"), 400),
    "version-2": (version(b" HTTP/2.0"), 505),
    "version-2-preface": (lambda _: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 400),
    "version-in-small-letters": (version(b" http/1.1"), 400),
    "version-with-space": (version(b" HTTP/1.1 "), 400),
    "tls": (lambda _: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "answer": (lambda _: b"HTTP/1.1 200 OK\r\n\r\n", 400),
}
SPOILT = {**BAD_FRAMING, **BAD_CHUNKS, **BAD_HEADS}


@pytest.mark.parametrize("fault", SPOILT)
async def test_what_could_be_misread_is_refused_once_and_the_connection_ends(served, fault):
    spoil, status = SPOILT[fault]
    data = spoil(served.signed(BODY)) + SMUGGLED
    for place in range(0, len(data), 13):
        (answer,) = await tell(served, cut(data, [place]))
        assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert served.container.asked == []


OVERSIZED = {
    "line": (line(b"X-A: " + b"a" * MAX_HEAD_BYTES), 431),
    "lines": (line(b"\r\n".join([b"X-A: " + b"a" * 1000] * 70)), 431),
    "name": (line(b"a" * MAX_HEAD_BYTES + b": b"), 431),
    "fields": (line(b"\r\n".join([b"X-A: 1"] * MAX_HEADERS)), 431),
    "target": (instead_of(b"invocations", b"i" * MAX_TARGET_BYTES), 414),
    "target-beyond-the-head": (instead_of(b"invocations", b"i" * (2 * MAX_HEAD_BYTES)), 414),
    "query": (instead_of(b"invocations", b"invocations?" + b"q" * MAX_TARGET_BYTES), 414),
}


@pytest.mark.parametrize("fault", OVERSIZED)
@pytest.mark.parametrize("before", [b"", b"earlier"], ids=["first", "second"])
async def test_a_head_s_bounds_do_not_depend_on_how_it_is_cut(served, fault, before):
    spoil, status = OVERSIZED[fault]
    data = spoil(served.signed(BODY)) + SMUGGLED
    if before:
        data = served.signed(before) + data
    for places in ([], [600], [1000, 2000], [70_000], range(0, len(data), 16_384)):
        *others, answer = await tell(served, cut(data, list(places)))
        assert [one.body for one in others] == [before] * bool(before)
        assert (answer.status, answer.headers["connection"]) == (status, "close")


async def test_a_large_head_within_the_bounds_is_taken_however_it_is_cut(served):
    data = with_field(served.signed(BODY), b"X-A: " + b"a" * (MAX_HEAD_BYTES - 1000))
    for places in ([], [1000, 2000], [60_000], range(0, len(data), 16_384)):
        (answer,) = await tell(served, cut(data, list(places)))
        assert (answer.status, answer.body) == (200, BODY)


async def test_a_head_without_an_end_is_refused_before_its_time_is_over(served):
    pieces = [b"POST / HTTP/1.1\r\nX-A: b", *[b"\r\nX-A: " + b"a" * 10_000] * 100]
    (answer,) = await tell(served, pieces)
    assert answer.status == 431


NASTY = [
    *(b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"\0", b" ", b"\t", b":", b",", b";", b"\xff", b"\x7f"),
    *(b"0", b"5", b"-1", b"0x5", b"99999999999999999999", b"0\r\n\r\n", b"5\r\n1,2,3\r\n"),
    *(b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"Transfer-Encoding: gzip\r\n", b"Connection: close\r\n", b"Connection: keep-alive\r\n"),
    *(b"Upgrade: h2c\r\nConnection: Upgrade\r\n", b"Expect: 100-continue\r\n", b"HTTP/1.0"),
    *(b"HTTP/2.0", b"CONNECT ", b"/../", b"%00", b"?", b"#", b"//", SMUGGLED),
]
places = st.floats(0, 1, exclude_max=True)
mutations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), places, st.one_of(st.sampled_from(NASTY), st.binary(max_size=3))),
        st.tuples(
            st.just("write over"), places, st.one_of(st.sampled_from(NASTY), st.binary(max_size=3))
        ),
        st.tuples(st.just("drop"), places, st.integers(1, 60)),
        st.tuples(st.just("repeat"), places, st.integers(1, 60)),
    ),
    max_size=4,
)


def mutated(data: bytes, changes) -> bytes:
    for what, where, more in changes:
        at = int(where * len(data))
        if what == "put":
            data = data[:at] + more + data[at:]
        elif what == "write over":
            data = data[:at] + more + data[at + len(more) :]
        elif what == "drop":
            data = data[:at] + data[at + more :]
        else:
            data = data[: at + more] + data[at:]
    return data


@settings(some, max_examples=150)
@given(st.booleans(), mutations, cuts)
async def test_a_broken_request_is_answered_rightly_or_refused(served, in_chunks, changes, where):
    signed = served.signed(BODY)
    request = chunked(signed, *GOOD_CHUNKS) if in_chunks else signed
    data = mutated(request, changes) + served.signed(b"behind")
    served.container.asked.clear()
    answers = await tell(served, cut(data, where))
    # Whatever it was made into: only what was signed may have been worked on, and only once.
    worked_on = [asked.body for asked in served.container.asked]
    assert worked_on in ([], [BODY], [b"behind"], [BODY, b"behind"])
    assert [one.body for one in answers if one.status == 200] == worked_on
    for answer in answers:
        assert answer.status == 200 or 400 <= answer.status < 600
    for answer in answers[:-1]:
        assert answer.headers.get("connection") != "close"
