"""Botocore's own decoder is the judge of the frames."""

import json

from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from sagehen.wire.event_stream import event, exception, frame

names = st.text(
    st.characters(max_codepoint=127, exclude_categories=("Cs",)), min_size=1, max_size=60
)


def decoded(data, cuts=()):
    """What comes of frames that arrive in pieces."""
    buffer, messages, start = EventStreamBuffer(), [], 0
    for cut in [*sorted(cuts), len(data)]:
        buffer.add_data(data[start:cut])
        messages += list(buffer)
        start = max(start, cut)
    return messages


@given(st.dictionaries(names, st.text(max_size=300), max_size=5), st.binary(max_size=2000))
def test_headers_and_payload_come_back(headers, payload):
    (message,) = decoded(frame(headers, payload))
    assert message.headers == headers
    assert message.payload == payload


@given(st.lists(st.binary(max_size=100), max_size=10), st.lists(st.integers(0, 1000)))
def test_frames_are_found_wherever_they_are_cut(pieces, cuts):
    sent = b"".join(event("PayloadPart", piece) for piece in pieces)
    got = decoded(sent, [cut for cut in cuts if cut < len(sent)])
    assert [message.payload for message in got] == pieces
    for message in got:
        assert message.headers == {
            ":event-type": "PayloadPart",
            ":content-type": "application/octet-stream",
            ":message-type": "event",
        }


@given(st.text(), st.text())
def test_an_exception_has_its_members(message, code):
    (got,) = decoded(exception("ModelStreamError", {"Message": message, "ErrorCode": code}))
    assert got.headers == {
        ":exception-type": "ModelStreamError",
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    assert json.loads(got.payload) == {"Message": message, "ErrorCode": code}
    assert got.to_response_dict()["status_code"] == 400
