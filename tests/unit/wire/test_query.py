"""Forms of the Query protocol, and its XML."""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request
from sagehen.wire.parse import parse
from sagehen.wire.serialize import serialize
from support.made_up_service import made_up, read_back, sent

SHAPES = {
    "Names": {"type": "list", "member": {"shape": "string"}},
    "Items": {"type": "list", "member": {"shape": "Item", "locationName": "Entry"}},
    "Flat": {"type": "list", "flattened": True, "member": {"shape": "string"}},
    "FlatNamed": {
        "type": "list",
        "flattened": True,
        "member": {"shape": "string", "locationName": "One"},
    },
    "Map": {"type": "map", "key": {"shape": "string"}, "value": {"shape": "integer"}},
    "FlatMap": {
        "type": "map",
        "flattened": True,
        "key": {"shape": "string", "locationName": "Name"},
        "value": {"shape": "Item", "locationName": "Value"},
    },
    "Item": {
        "type": "structure",
        "members": {"Key": {"shape": "string"}, "Inner": {"shape": "Item"}},
    },
}
MEMBERS = {
    "Text": {"shape": "string"},
    "Number": {"shape": "integer"},
    "Share": {"shape": "double"},
    "Yes": {"shape": "boolean"},
    "Moment": {"shape": "timestamp"},
    "Bytes": {"shape": "blob"},
    "Names": {"shape": "Names"},
    "Items": {"shape": "Items"},
    "Flat": {"shape": "Flat", "locationName": "FlatName"},
    "FlatNamed": {"shape": "FlatNamed"},
    "Map": {"shape": "Map"},
    "FlatMap": {"shape": "FlatMap"},
    "Item": {"shape": "Item"},
}
EVERYTHING: dict[str, Any] = {
    "Text": "<a&b>\n 東 \"'",
    "Number": -(2**31),
    "Share": 1e-7,
    "Yes": False,
    "Moment": datetime(2026, 11, 1, 12, tzinfo=UTC),
    "Bytes": b"\x00\xff",
    "Names": ["a", ""],
    "Items": [{"Key": "a"}, {"Inner": {"Inner": {"Key": "b"}}}],
    "Flat": [str(number) for number in range(12)],
    "FlatNamed": ["x"],
    "Map": {"a": 1, "": 2},
    "FlatMap": {"n": {"Key": "v"}},
    "Item": {"Key": ""},
}
DO = made_up("query", MEMBERS, SHAPES)


def form(text: str) -> dict[str, Any]:
    return parse(Request("POST", "/", "", {}, text.encode()), DO)


def test_everything_that_botocore_sends_is_read() -> None:
    assert parse(sent(DO, EVERYTHING), DO) == EVERYTHING


def test_botocore_reads_everything_that_is_written() -> None:
    assert read_back(DO, serialize(DO, EVERYTHING, "id")) == EVERYTHING


def test_botocore_leaves_out_empty_structures_in_lists() -> None:
    assert parse(sent(DO, {"Items": [{}, {"Key": "b"}]}), DO) == {"Items": [{"Key": "b"}]}


def test_an_empty_list_is_sent_as_an_empty_parameter() -> None:
    params = {"Names": [], "Flat": [], "FlatNamed": []}
    assert parse(sent(DO, params), DO) == params


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("", {}),
        ("Action=Do&Version=2026-11-01&X-Amz-Date=1&AWSAccessKeyId=a", {}),
        ("Names.member.10=c&Names.member.9=b&Names.member.3=a", {"Names": ["a", "b", "c"]}),
        ("Items.Entry.1.Key=k", {"Items": [{"Key": "k"}]}),
        ("Text=%F0%9F%98%80+%2B&Yes=true", {"Text": "😀 +", "Yes": True}),
        ("Share=NaN&Number=1", None),
    ],
)
def test_forms_that_botocore_does_not_send(text: str, params: dict[str, Any] | None) -> None:
    if params is None:
        share = form(text)["Share"]
        assert share != share  # NaN
    else:
        assert form(text) == params


@pytest.mark.parametrize(
    "name",
    [
        "NoSuch",
        "Map",
        "Names",
        "Names.member.0",
        "Names.member.01",
        "Names.member.x",
        "Names.member.1.Key",
        f"Names.member.{'9' * 5_000}",
        "Names.member.1_0",
        "Names.member.²",
        "Names.1",
        "Items.member.1.Key",
        "Items.Entry.1.NoSuch",
        "Text.1",
    ],
)
def test_unknown_parameters_are_refused_by_name(name: str) -> None:
    with pytest.raises(AwsError) as caught:
        form(f"Text=a&Items.Entry.1.Key=k&{quote(name)}=x")
    assert (caught.value.code, caught.value.status) == ("ValidationError", 400)
    assert f"'{name[:128]}' of Do" in caught.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Number=1.5", "at 'Number': '1.5' is not an integer"),
        ("Number=", "at 'Number'"),
        ("Number=2147483648", "at 'Number'"),
        ("Number=+ 1", "at 'Number'"),
        ("Yes=True", "at 'Yes': 'True' is neither true nor false"),
        ("Share=much", "at 'Share'"),
        ("Moment=tomorrow", "at 'Moment'"),
        ("Bytes=*", "at 'Bytes'"),
        ("Map.entry.1.key=a&Map.entry.1.value=b", "at 'Map.a'"),
        ("Map.entry.1.key=a", "at 'Map': the parameter Map.entry.1.value is missing"),
        ("Map.entry.1.value=1", "at 'Map': the parameter Map.entry.1.key is missing"),
        ("FlatMap.1.Name=a", "at 'FlatMap': the parameter FlatMap.1.Value is missing"),
    ],
)
def test_values_that_cannot_be_read_are_refused_with_their_place(text: str, words: str) -> None:
    with pytest.raises(AwsError) as caught:
        form(text)
    assert (caught.value.code, caught.value.status) == ("MalformedInput", 400)
    assert words in caught.value.message


def test_a_repeated_parameter_is_refused() -> None:
    for text in ("Text=a&Text=b", "Text=a&T%65xt=b"):
        with pytest.raises(AwsError) as caught:
            form(text)
        assert caught.value.code == "InvalidQueryParameter"


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(AwsError) as caught:
        form(f"Item.{'Inner.' * 5_000}Key=a")
    assert caught.value.code == "MalformedInput"


def test_the_wrapper_of_a_response() -> None:
    response = serialize(DO, {"Text": "a", "Names": [], "Items": [{}, None], "Map": {}}, "the-id")
    assert response.body == (
        b'<DoResponse xmlns="urn:x"><DoResult><Text>a</Text><Names/><Items><Entry/></Items><Map/>'
        b"</DoResult><ResponseMetadata><RequestId>the-id</RequestId></ResponseMetadata>"
        b"</DoResponse>"
    )
    assert response.headers["Content-Type"] == "text/xml"


@pytest.mark.parametrize(
    ("number", "text"), [(float("inf"), b"Infinity"), (float("nan"), b"NaN"), (2, b"2.0")]
)
def test_numbers_that_xml_has_words_for(number: float, text: bytes) -> None:
    assert b"<Share>" + text + b"</Share>" in serialize(DO, {"Share": number}, "id").body
