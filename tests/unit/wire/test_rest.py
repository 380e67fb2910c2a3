"""Members in paths, queries and headers; bodies of every kind."""

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer

from sagehen.wire.errors import AwsError
from sagehen.wire.event_stream import event
from sagehen.wire.http import Request
from sagehen.wire.parse import parse
from sagehen.wire.serialize import serialize
from sagehen.wire.services import service
from support.made_up_service import made_up, read_back, sent

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
SHAPES = {
    "Names": {"type": "list", "member": {"shape": "string"}},
    "Numbers": {"type": "list", "member": {"shape": "integer"}},
    "Map": {"type": "map", "key": {"shape": "string"}, "value": {"shape": "string"}},
    "Inner": {"type": "structure", "members": {"Key": {"shape": "string"}}},
    "Seconds": {"type": "timestamp", "timestampFormat": "unixTimestamp"},
}
HEADERS = {
    "Moment": {"shape": "timestamp", "location": "header", "locationName": "X-Moment"},
    "Seconds": {"shape": "Seconds", "location": "header", "locationName": "X-Seconds"},
    "Yes": {"shape": "boolean", "location": "header", "locationName": "X-Yes"},
    "Number": {"shape": "integer", "location": "header", "locationName": "X-Number"},
    "Names": {"shape": "Names", "location": "header", "locationName": "X-Names"},
    "Json": {"shape": "string", "jsonvalue": True, "location": "header", "locationName": "X-Json"},
    "Map": {"shape": "Map", "location": "headers", "locationName": "X-Map-"},
}
IN_HEADERS: dict[str, Any] = {
    "Moment": NOON,
    "Seconds": NOON,
    "Yes": True,
    "Number": -1,
    "Names": ["a", "b"],
    "Json": {"a": [1, None, "東"]},
    "Map": {"a": "1", "b-c": "2"},
}
PARAMETERS = {
    "Label": {"shape": "string", "location": "uri", "locationName": "Label"},
    "Rest": {"shape": "string", "location": "uri", "locationName": "Rest"},
    "Page": {"shape": "integer", "location": "querystring", "locationName": "page"},
    "Since": {"shape": "timestamp", "location": "querystring", "locationName": "since"},
    "Ids": {"shape": "Numbers", "location": "querystring", "locationName": "id"},
    "Flag": {"shape": "boolean", "location": "querystring", "locationName": "flag"},
    "InBody": {"shape": "string", "locationName": "inBody"},
    "Inner": {"shape": "Inner"},
}
PROTOCOLS = ("rest-json", "rest-xml")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_headers_in_both_directions(protocol: str) -> None:
    do = made_up(protocol, HEADERS, SHAPES)
    received = parse(sent(do, IN_HEADERS), do)
    assert received == IN_HEADERS
    response = serialize(do, IN_HEADERS, "id")
    assert response.headers["X-Seconds"] == "1793534400"
    later = serialize(do, {"Seconds": NOON.timestamp() + 0.125}, "id")
    assert later.headers["X-Seconds"] == "1793534400.125"
    assert response.headers["X-Moment"] == "Sun, 01 Nov 2026 12:00:00 GMT"
    back = read_back(do, response)
    assert {**back, "Map": {"a": "1", "b-c": "2"}} == IN_HEADERS


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_paths_queries_and_bodies(protocol: str) -> None:
    do = made_up(protocol, PARAMETERS, SHAPES, uri="/a/{Label}/b/{Rest+}")
    params = {
        "Label": "x/ y",
        "Rest": "1/2%",
        "Page": 7,
        "Since": NOON,
        "Ids": [1, 2],
        "Flag": False,
        "InBody": "<東>",
        "Inner": {"Key": "k"},
    }
    assert parse(sent(do, params), do) == params


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_body_does_not_set_what_belongs_into_the_path(protocol: str) -> None:
    do = made_up(protocol, PARAMETERS, SHAPES, uri="/a/{Label}/b/{Rest+}")
    if protocol == "rest-json":
        body = b'{"Label": "evil", "inBody": "ok"}'
        with pytest.raises(AwsError, match=r"does not know the member 'Label' of "):
            parse(Request("POST", "/a/good/b/c", "", {}, body), do)
        return
    body = b"<In><Label>evil</Label><page>9</page><inBody>ok</inBody></In>"
    params = parse(Request("POST", "/a/good/b/c", "", {}, body), do)
    assert params == {"Label": "good", "Rest": "c", "InBody": "ok"}


@pytest.mark.parametrize(
    ("query", "headers", "place"),
    [
        ("page=1&page=2", {}, "Page"),
        ("page=", {}, "Page"),
        ("page=1.0", {}, "Page"),
        ("flag=1", {}, "Flag"),
        ("since=soon", {}, "Since"),
        ("id=1&id=x", {}, "Ids"),
    ],
)
def test_parameters_that_cannot_be_read(query: str, headers: dict[str, str], place: str) -> None:
    do = made_up("rest-json", PARAMETERS, SHAPES, uri="/a/{Label}/b/{Rest+}")
    with pytest.raises(AwsError, match=f"at '{place}'") as caught:
        parse(Request("POST", "/a/b/b/c", query, headers), do)
    assert caught.value.code == "SerializationException"


@pytest.mark.parametrize("value", ["x", "e30", base64.b64encode(b"{").decode(), "W1tb" * 20_000])
def test_a_header_that_holds_no_json(value: str) -> None:
    do = made_up("rest-json", HEADERS, SHAPES)
    with pytest.raises(AwsError, match="at 'Json'"):
        parse(Request("POST", "/", "", {"x-json": value}), do)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["string", "blob"])
def test_a_payload_is_the_body_as_it_is(protocol: str, kind: str) -> None:
    do = made_up(protocol, {"Body": {"shape": kind}}, SHAPES, payload="Body")
    body = "a\r東" if kind == "string" else b"\x00\xff<&"
    assert parse(sent(do, {"Body": body}), do) == {"Body": body}
    response = serialize(do, {"Body": body}, "id")
    assert response.body == (body if isinstance(body, bytes) else body.encode())
    assert parse(Request("POST", "/", "", {}), do) == {}
    required = made_up(protocol, {"Body": {"shape": kind}}, {}, payload="Body", required=["Body"])
    nothing = {"Body": b""} if kind == "blob" else {}
    assert parse(Request("POST", "/", "", {}), required) == nothing


def test_text_that_is_not_utf_8_is_refused() -> None:
    request = Request("PUT", "/b", "policy", {}, b"\xff")
    with pytest.raises(AwsError) as caught:
        parse(request, service("s3").operation_model("PutBucketPolicy"))
    assert (caught.value.code, caught.value.status) == ("MalformedXML", 400)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_structure_as_payload(protocol: str) -> None:
    do = made_up(
        protocol, {"Inner": {"shape": "Inner", "locationName": "Root"}}, SHAPES, payload="Inner"
    )
    assert parse(sent(do, {"Inner": {"Key": "k"}}), do) == {"Inner": {"Key": "k"}}
    assert read_back(do, serialize(do, {"Inner": {"Key": "k"}}, "id")) == {"Inner": {"Key": "k"}}
    assert parse(Request("POST", "/", "", {}), do) == {}
    assert serialize(do, {}, "id").status == 200


def test_a_response_without_members_in_its_body() -> None:
    head = service("s3").operation_model("DeleteObject")
    response = serialize(head, {"DeleteMarker": True}, "id")
    assert (response.status, response.body) == (204, b"")
    assert "Content-Type" not in response.headers
    asynchronous = service("sagemaker-runtime").operation_model("InvokeEndpointAsync")
    accepted = serialize(asynchronous, {"InferenceId": "i", "OutputLocation": "s3://b/o"}, "id")
    assert (accepted.status, accepted.body) == (202, b'{"InferenceId":"i"}')
    assert accepted.headers["X-Amzn-SageMaker-OutputLocation"] == "s3://b/o"


def test_the_frames_of_an_event_stream_are_sent_unchanged() -> None:
    streaming = service("sagemaker-runtime").operation_model("InvokeEndpointWithResponseStream")
    frames = event("PayloadPart", b"1") + event("PayloadPart", b"2")
    result = {"Body": frames, "ContentType": "text/csv", "CustomAttributes": None}
    response = serialize(streaming, result, "id")
    assert response.headers == {
        "X-Amzn-SageMaker-Content-Type": "text/csv",
        "Content-Type": "application/vnd.amazon.eventstream",
        "x-amzn-RequestId": "id",
    }
    buffer = EventStreamBuffer()
    buffer.add_data(response.body)
    assert [frame.payload for frame in buffer] == [b"1", b"2"]


@pytest.mark.parametrize(("location", "inner"), [("eu-west-1", b">eu-west-1</"), (None, b"/>")])
def test_the_location_of_a_bucket_stands_in_the_root(location: str | None, inner: bytes) -> None:
    operation = service("s3").operation_model("GetBucketLocation")
    body = serialize(operation, {"LocationConstraint": location}, "id").body
    assert inner in body
    assert b"<LocationConstraint xmlns=" in body
