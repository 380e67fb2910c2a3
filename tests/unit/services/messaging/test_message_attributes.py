"""Message attributes: names, types and values that SNS and SQS take."""

from typing import Any

import pytest

from sagehen.base.errors import Invalid
from sagehen.services.messaging.message_attributes import (
    EmptyAttributeError,
    MessageAttribute,
    attributes_size,
    is_text,
    read_attributes,
)


def test_each_type_has_its_value() -> None:
    read = read_attributes(
        {
            "s": {"DataType": "String.custom", "StringValue": "ü"},
            "n": {"DataType": "Number", "StringValue": "1e3"},
            "b": {"DataType": "Binary", "BinaryValue": b"\0"},
        }
    )
    assert read == {
        "s": MessageAttribute("String.custom", "ü"),
        "n": MessageAttribute("Number", "1e3"),
        "b": MessageAttribute("Binary", binary_value=b"\0"),
    }
    assert attributes_size(read) == (1 + 13 + 2) + (1 + 6 + 3) + (1 + 6 + 1)


@pytest.mark.parametrize("name", ["", ".a", "a.", "a..b", "a b", "aws.x", "Amazon.x", "x" * 257])
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(Invalid, match=r"name .* is invalid"):
        read_attributes({name: {"DataType": "String", "StringValue": "v"}})


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ({}, "invalid message attribute type"),
        ({"DataType": "Text", "StringValue": "v"}, "invalid message attribute type"),
        ({"DataType": "String." + "x" * 250, "StringValue": "v"}, "invalid message attribute type"),
        ({"DataType": "Number", "StringValue": "one"}, "to number"),
        ({"DataType": "String", "StringValue": "\0"}, "characters that are not allowed"),
    ],
)
def test_values_that_are_refused(attribute: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        read_attributes({"a": attribute})


@pytest.mark.parametrize("kind", ["String", "Number", "Binary"])
def test_an_empty_value_is_an_error_of_its_own(kind: str) -> None:
    with pytest.raises(EmptyAttributeError) as caught:
        read_attributes({"a": {"DataType": kind, "StringValue": "", "BinaryValue": b""}})
    assert (caught.value.name, caught.value.kind) == ("a", kind)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("a\t\n\r\U0001f600", True), ("\0", False), ("\x1f", False), ("\ufffe", False)],
)
def test_what_xml_can_hold(text: str, is_one: bool) -> None:
    assert is_text(text) is is_one
