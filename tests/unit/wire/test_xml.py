"""XML from clients, which is read without doing what it says."""

from typing import Any

import pytest

from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request
from sagehen.wire.parse import parse
from sagehen.wire.serialize import serialize
from sagehen.wire.services import service
from sagehen.wire.values import MalformedValue
from sagehen.wire.xml import read_document
from support.made_up_service import made_up, read_back, sent

SHAPES = {
    "Names": {"type": "list", "member": {"shape": "string", "locationName": "Name"}},
    "Flat": {"type": "list", "flattened": True, "member": {"shape": "Item"}},
    "FlatNamed": {
        "type": "list",
        "flattened": True,
        "member": {"shape": "string", "locationName": "One"},
    },
    "Map": {"type": "map", "key": {"shape": "string"}, "value": {"shape": "integer"}},
    "FlatMap": {
        "type": "map",
        "flattened": True,
        "key": {"shape": "string", "locationName": "K"},
        "value": {"shape": "Item", "locationName": "V"},
    },
    "Item": {
        "type": "structure",
        "members": {
            "Key": {"shape": "string"},
            "Kind": {"shape": "string", "locationName": "x:kind", "xmlAttribute": True},
            "Inner": {"shape": "Item"},
        },
        "xmlNamespace": {"prefix": "x", "uri": "urn:kinds"},
    },
    "Doc": {
        "type": "structure",
        "members": {
            "Text": {"shape": "string", "locationName": "text"},
            "Number": {"shape": "integer"},
            "Yes": {"shape": "boolean"},
            "Bytes": {"shape": "blob"},
            "Moment": {"shape": "timestamp"},
            "Names": {"shape": "Names"},
            "Flat": {"shape": "Flat", "locationName": "Thing"},
            "FlatNamed": {"shape": "FlatNamed"},
            "Map": {"shape": "Map"},
            "FlatMap": {"shape": "FlatMap"},
            "Item": {"shape": "Item"},
        },
    },
}
DO = made_up("rest-xml", {"Doc": {"shape": "Doc", "locationName": "Doc"}}, SHAPES, payload="Doc")
EVERYTHING: dict[str, Any] = {
    "Text": "<a>&\"' \n 東",
    "Number": 5,
    "Yes": True,
    "Bytes": b"\x00\xff",
    "Names": ["a", "", "b"],
    "Flat": [{"Key": "1"}, {"Key": "2"}],
    "FlatNamed": ["x"],
    "Map": {"a": 1, "b": 2},
    "FlatMap": {"n": {"Key": "v"}},
    "Item": {"Kind": 'k"<', "Inner": {"Key": "deep"}},
}


def parsed(body: bytes) -> dict[str, Any]:
    params: dict[str, Any] = parse(Request("POST", "/", "", {}, body), DO)["Doc"]
    return params


def test_everything_in_both_directions() -> None:
    assert parse(sent(DO, {"Doc": EVERYTHING}), DO) == {"Doc": EVERYTHING}
    result = {"Doc": {**EVERYTHING, "Names": [None, *EVERYTHING["Names"]], "Moment": None}}
    assert read_back(DO, serialize(DO, result, "id")) == {"Doc": EVERYTHING}


@pytest.mark.parametrize(
    ("body", "params"),
    [
        (b"<Doc/>", {}),
        (b'<Doc xmlns="urn:other"><text>a</text><NoSuch><b/></NoSuch></Doc>', {"Text": "a"}),
        (b"<Doc><text> a <!-- c -->b</text></Doc>", {"Text": " a b"}),
        (b"<Doc><text><![CDATA[<&>]]></text></Doc>", {"Text": "<&>"}),
        (b"<Doc>\n <Number> 5 </Number><Yes>\nfalse</Yes></Doc>", {"Number": 5, "Yes": False}),
        (b"<Doc><text/><Names/><Map/></Doc>", {"Text": "", "Names": [], "Map": {}}),
        (b'<?xml version="1.0" encoding="latin-1"?><Doc><text>\xe9</text></Doc>', {"Text": "é"}),
        ("<Doc><text>東</text></Doc>".encode("utf-16"), {"Text": "東"}),
    ],
)
def test_documents_that_botocore_does_not_send(body: bytes, params: dict[str, Any]) -> None:
    assert parsed(body) == params


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ("<text>a</text><text>b</text>", "at 'Text': the element comes more than once"),
        ("<Item/><Item/>", "at 'Item': the element comes more than once"),
        ("<Names/><Names/>", "at 'Names': the element comes more than once"),
        ("<text>a<b/></text>", "at 'Text': text is expected here"),
        ("<Names><Other>a</Other></Names>", "at 'Names': the element 'Other' is not expected"),
        ("<Names><Name><b/></Name></Names>", "at 'Names.1'"),
        ("<Number>1.0</Number>", "at 'Number'"),
        ("<Number>2147483648</Number>", "at 'Number'"),
        ("<Number/>", "at 'Number'"),
        ("<Yes>1</Yes>", "at 'Yes'"),
        ("<Bytes>*</Bytes>", "at 'Bytes'"),
        ("<Moment>x</Moment>", "at 'Moment'"),
        ("<Map><entry><key>a</key></entry></Map>", "at 'Map': an entry must hold one 'key'"),
        ("<Map><entry><key>a</key><key>b</key></entry></Map>", "at 'Map'"),
        ("<Map><entry><key>a</key><value>x</value></entry></Map>", "at 'Map.a'"),
        ("<FlatMap><K>a</K></FlatMap>", "at 'FlatMap'"),
    ],
)
def test_values_that_cannot_be_read_are_refused_with_their_place(inner: str, words: str) -> None:
    with pytest.raises(AwsError) as caught:
        parsed(f"<Doc>{inner}</Doc>".encode())
    assert (caught.value.code, caught.value.status) == ("MalformedXML", 400)
    assert words in caught.value.message


@pytest.mark.parametrize(
    "body",
    [
        b"<Other/>",
        b"<Doc>",
        b"<Doc/><Doc/>",
        b"text",
        b"<Doc>\xff</Doc>",
        b"<Doc>\x00</Doc>",
        b"<Doc>&#0;</Doc>",
        b"<Doc>&nbsp;</Doc>",
        b'<?xml version="1.0" encoding="utf-7"?><Doc/>',
        b'<?xml version="1.0" encoding="no-such"?><Doc/>',
        b"<!DOCTYPE Doc><Doc/>",
        b'<!DOCTYPE Doc [<!ENTITY a "b">]><Doc><text>&a;</text></Doc>',
        b'<!DOCTYPE Doc SYSTEM "http://127.0.0.1/x.dtd"><Doc/>',
        '<!DOCTYPE Doc [<!ENTITY a "b">]><Doc/>'.encode("utf-16"),
        b"<Doc>" + b"<Item>" * 100 + b"</Item>" * 100 + b"</Doc>",
        b"<a>" * 1_000_000,
    ],
)
def test_documents_that_are_refused(body: bytes) -> None:
    with pytest.raises(AwsError) as caught:
        parsed(body)
    assert (caught.value.code, caught.value.status) == ("MalformedXML", 400)


def test_documents_may_be_as_deep_as_those_of_s3() -> None:
    inner = b"<Inner>" * 60 + b"<Key>k</Key>" + b"</Inner>" * 60
    params = parsed(b"<Doc><Item>" + inner + b"</Item></Doc>")["Item"]
    for _ in range(60):
        params = params["Inner"]
    assert params == {"Key": "k"}
    with pytest.raises(MalformedValue, match="nested too deeply"):
        read_document(b"<a>" * 65 + b"</a>" * 65)


def test_attributes_are_written_with_their_namespace() -> None:
    grants = [{"Grantee": {"Type": "Group", "URI": "u"}, "Permission": "READ"}]
    operation = service("s3").operation_model("GetBucketAcl")
    assert (
        b'<Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group">'
        b"<URI>u</URI></Grantee><Permission>READ</Permission></Grant>"
    ) in serialize(operation, {"Grants": grants}, "id").body
