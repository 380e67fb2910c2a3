"""Validates resource properties, and converts between text and numbers as CloudFormation does;
messages follow its schema validation."""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from sagehen.apply.template.parameters import text_of
from sagehen.apply.template.reading import Written
from sagehen.base.errors import Invalid

__all__ = [
    "FLAG",
    "JSON",
    "TEXT",
    "WHOLE",
    "Read",
    "keyed_tags",
    "list_of",
    "members_of",
    "one_of",
    "structure",
]

Read = Callable[[Any, str], Any]
"""`read(value, path)` returns the API's form; raises Invalid"""


def TEXT(value: Any, path: str) -> str:  # noqa: N802 — these read as the types that they are
    text = text_of(value)
    if text is None:
        raise _wrong(path, "String", value)
    return text


def WHOLE(value: Any, path: str) -> int:  # noqa: N802
    text = text_of(value)
    try:
        number = float(text) if text is not None and not isinstance(value, bool) else None
        if number is not None and number.is_integer():
            return int(text) if text is not None and text.lstrip("+-").isdigit() else int(number)
    except (ValueError, OverflowError):
        pass
    raise _wrong(path, "Integer", value)


def NUMBER(value: Any, path: str) -> float:  # noqa: N802
    text = text_of(value)
    try:
        if text is not None and not isinstance(value, bool):
            return float(text)
    except ValueError:
        pass
    raise _wrong(path, "Number", value)


def FLAG(value: Any, path: str) -> bool:  # noqa: N802
    text = text_of(value)
    if text is None or text.lower() not in ("true", "false"):
        raise _wrong(path, "Boolean", value)
    return text.lower() == "true"


def JSON(value: Any, path: str) -> Any:  # noqa: N802
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise Invalid(f"{path}: it is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _wrong(path, "JSONObject", value)
    return _plain(value)


def one_of(*allowed: str) -> Read:
    def read(value: Any, path: str) -> str:
        text = TEXT(value, path)
        if text not in allowed:
            raise _not_allowed(path, text, allowed)
        return text

    return read


def list_of(read: Read) -> Read:
    def read_list(value: Any, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise _wrong(path, "JSONArray", value)
        return [read(item, f"{path}/{number}") for number, item in enumerate(value)]

    return read_list


def structure(members: Mapping[str, Read], required: Collection[str] = ()) -> Read:
    def read(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong(path, "JSONObject", value)
        for name in value:
            if name not in members:
                raise Invalid(
                    f"{path}: extraneous key [{name}] is not permitted, or not implemented by "
                    "Sagehen (docs/reference/templates.md lists what is)"
                )
        for name in required:
            if name not in value:
                raise Invalid(f"{path}: required key [{name}] not found")
        return {name: members[name](item, f"{path}/{name}") for name, item in value.items()}

    return read


keyed_tags = list_of(structure({"Key": TEXT, "Value": TEXT}, ("Key", "Value")))


def members_of(shape: StructureShape) -> dict[str, Read]:
    return {name: _reader(member) for name, member in shape.members.items()}


def _reader(shape: Shape) -> Read:
    """The reader is made on use, because some shapes contain themselves."""

    def read(value: Any, path: str) -> Any:
        if isinstance(shape, StructureShape):
            return structure(members_of(shape), shape.required_members)(value, path)
        if isinstance(shape, ListShape):
            return list_of(_reader(shape.member))(value, path)
        if isinstance(shape, MapShape):
            if not isinstance(value, dict):
                raise _wrong(path, "JSONObject", value)
            inner = _reader(shape.value)
            return {name: inner(item, f"{path}/{name}") for name, item in value.items()}
        return _scalar(shape, value, path)

    return read


def _scalar(shape: Shape, value: Any, path: str) -> Any:
    if shape.type_name in ("integer", "long"):
        return WHOLE(value, path)
    if shape.type_name in ("float", "double"):
        return NUMBER(value, path)
    if shape.type_name == "boolean":
        return FLAG(value, path)
    text = TEXT(value, path)
    allowed = getattr(shape, "enum", None)
    if allowed and text not in allowed:
        raise _not_allowed(path, text, allowed)
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return float(value) if isinstance(value, Written) else value


def _wrong(path: str, expected: str, value: Any) -> Invalid:
    kinds = {str: "String", bool: "Boolean", int: "Integer", list: "JSONArray", dict: "JSONObject"}
    actual = "Null" if value is None else kinds.get(type(value), "Number")
    return Invalid(f"{path}: expected type: {expected}, found: {actual}")


def _not_allowed(path: str, text: str, allowed: Collection[str]) -> Invalid:
    names = sorted(allowed)
    listed = ", ".join(names) if len(names) <= 20 else f"{', '.join(names[:20])}, ..."
    return Invalid(f"{path}: {text} is not a valid enum value. It is one of {listed}.")
