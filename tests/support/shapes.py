"""Values of every kind that botocore's models describe, for tests of the wire."""

import functools
import math
from datetime import UTC, datetime

from hypothesis import strategies as st

__all__ = ["structures", "without_empty"]

DEEPEST = 4
"""Below it only required members are made: some shapes hold themselves."""

_TOKEN = "abcdefghijklmnopqrstuvwxyz0123456789-"
_HEADER_TEXT = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters=",\"'"), min_size=1
)
_ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
# What XML 1.0 can hold. Clients write carriage returns raw, and readers take them for newlines.
_XML_TEXT = st.text(
    st.characters(
        exclude_categories=["Cs", "Cc"],
        include_characters="\t\n",
        exclude_characters="\ufffe\uffff",
    ),
    max_size=12,
)
_DATES = st.integers(0, 2**32).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))


@st.composite
def structures(draw, shape, protocol, depth=0):
    """Members of a structure by name: those required, and some of the others."""
    made = {}
    for name, member in shape.members.items():
        if member.serialization.get("eventstream"):
            continue
        needed = name in shape.required_members
        if needed or (depth < DEEPEST and draw(st.integers(0, 2 + depth)) == 0):
            made[name] = draw(values(member, protocol, depth + 1))
            if name == shape.serialization.get("payload") and made[name] == b"" and not needed:
                del made[name]  # No body and an empty one are the same.
    if shape.is_tagged_union:
        name = draw(st.sampled_from(sorted(shape.members)))
        return {name: draw(values(shape.members[name], protocol, depth + 1))}
    return made


@functools.lru_cache(4096)  # To make a strategy takes longer than to draw from it.
def values(shape, protocol, depth):
    """Values of a shape; where it goes into a header or a path, such as can stand there."""
    location = shape.serialization.get("location")
    kind = shape.type_name
    if kind == "structure":
        return structures(shape, protocol, depth)
    if kind == "list":
        least = 1 if location or depth < DEEPEST else 0
        return st.lists(
            _HEADER_TEXT if location else values(shape.member, protocol, depth + 1),
            min_size=least,
            max_size=2,
        )
    if kind == "map":
        keys = st.text(_TOKEN, min_size=1) if location else _text(shape.key, protocol)
        inner = _HEADER_TEXT if location else values(shape.value, protocol, depth + 1)
        return st.dictionaries(keys, inner, min_size=1, max_size=2)
    return _scalars(shape, protocol, location)


def _scalars(shape, protocol, location):
    kind = shape.type_name
    if kind in ("integer", "long"):
        bits = 31 if kind == "integer" else 63
        return st.integers(-(2**bits), 2**bits - 1)
    if kind in ("float", "double"):
        return st.floats(allow_nan=False, allow_infinity=False)
    if kind == "boolean":
        return st.booleans()
    if kind == "timestamp":
        return _DATES
    if kind == "blob":
        return st.binary(max_size=20)
    if location == "header":
        return _HEADER_TEXT
    if location == "uri":
        return _ANY_TEXT.filter(lambda text: text.strip("/."))
    return _text(shape, protocol)


def _text(shape, protocol):
    if getattr(shape, "enum", None):
        return st.sampled_from(shape.enum)
    return _ANY_TEXT if protocol in ("json", "rest-json", "smithy-rpc-v2-cbor") else _XML_TEXT


def without_empty(value):
    """Without empty structures and lists in structures: XML does not tell them from nothing."""
    if isinstance(value, dict):
        inner = {name: without_empty(item) for name, item in value.items()}
        return {name: item for name, item in inner.items() if item not in ({}, [])}
    if isinstance(value, list):
        return [item for item in map(without_empty, value) if item != {}]
    assert not (isinstance(value, float) and math.isnan(value))
    return value
