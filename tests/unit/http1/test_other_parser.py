"""What another parser of HTTP/1.1 makes of the same bytes."""

import h11
from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.http1.request_head import KnownHeads
from support.caller import Caller, answers_in, cut, cuts, some
from support.http1 import Connection, Host


def as_we_read(
    pieces: list[bytes], known_heads: KnownHeads | None = None
) -> list[tuple[bytes, bytes, bytes]]:
    host = Host(answers_at_once=True)
    connection = Connection(host, known_heads)
    caller = Caller(connection)
    for piece in pieces:
        connection.data_received(piece)
    connection.connection_lost(None)
    understood = [
        (request.exchange.method, request.exchange.target, request.received)
        for request in host.requests
        if request.is_whole
    ]
    answers = answers_in(caller.received)
    assert sum(answer.status == 200 for answer in answers) == len(understood)
    return understood


def as_h11_reads(data: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """By another library: what is whole, up to what it refuses."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    understood = []
    try:
        while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Request):
                method, target, received = event.method, event.target, b""
            elif isinstance(event, h11.Data):
                received += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                understood.append((method, target, received))
                connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is h11.MUST_CLOSE:
                    break
                connection.start_next_cycle()
    except h11.RemoteProtocolError:
        pass
    return understood


LINES = [
    b"POST /a HTTP/1.1\r\nHost: h\r\n",
    b"PUT /b HTTP/1.1\r\nHost: h\r\n",
    b"POST /c HTTP/1.0\r\n",
]
FIELDS = [
    *[b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n"] * 3,
    *[
        b"Content-Length: 0\r\n",
        b"Content-Length: 03\r\n",
        b"Content-Length: 3 \r\n",
        b"X-A: b\r\n",
    ],
    *[b"Content-Length: 3, 3\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b" folded\r\n", b"\n"],
    *[
        b"Content-Length : 3\r\n",
        b"transfer-encoding:Chunked\t\r\n",
        b"Connection: close\r\n",
        b"\r",
    ],
]
BODIES = [
    *[b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n", b"3;a=b\r\nabc\r\n0\r\nX-T: c\r\n\r\n", b"0\r\n\r\n"]
    * 2,
    *[
        b"03\r\nabc\r\n000\r\n\r\n",
        b"3 \r\nabc\r\n0\r\n\r\n",
        b"3\nabc\n0\n\n",
        b"2\r\nabc",
        b"\r\n",
    ],
]
requests = st.tuples(
    st.sampled_from(LINES),
    st.lists(st.sampled_from(FIELDS), max_size=2).map(b"".join),
    st.just(b"\r\n"),
    st.sampled_from(BODIES),
).map(b"".join)


@settings(some, max_examples=150)
@given(st.lists(requests, min_size=1, max_size=4).map(b"".join), cuts)
async def test_another_parser_sees_the_same_requests(data, where):
    """Whoever relays to us, and is not more lenient than that one, is not misunderstood."""
    ours, theirs = as_we_read([data]), as_h11_reads(data)
    assert all(one == other for one, other in zip(ours, theirs, strict=False))
    assert as_we_read(cut(data, where)) == ours


@settings(some, max_examples=150)
@given(st.lists(requests, min_size=1, max_size=4), cuts)
async def test_known_heads_are_read_as_the_parser_reads_them(sent, where):
    known_heads = KnownHeads()
    for pieces in (sent, sent, sent, cut(b"".join(sent), where), sent):
        assert as_we_read(pieces, known_heads) == as_we_read(pieces)
