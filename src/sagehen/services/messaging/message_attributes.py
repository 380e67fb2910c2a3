"""Message attributes of SNS and SQS."""

import re
from typing import Any

import msgspec

from sagehen.base.errors import Invalid

__all__ = [
    "EmptyAttributeError",
    "MessageAttribute",
    "attributes_size",
    "is_text",
    "read_attributes",
    "read_group_id",
]

_NAME = re.compile(r"(?!\.)(?!.*\.\.)[\w.-]{1,256}(?<!\.)")
_RESERVED = re.compile(r"(aws|amazon)\.", re.IGNORECASE)
_TYPE = re.compile(r"(String|Number|Binary)(\.[\x20-\x7e]+)?")
_MAX_TYPE_LENGTH = 256
_GROUP_ID = re.compile(r"[!-~]{1,128}")
_NOT_TEXT = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class MessageAttribute(msgspec.Struct, frozen=True, omit_defaults=True):
    """`data_type` is `String`, `String.Array`, `Number` or `Binary`."""

    data_type: str
    string_value: str | None = None
    binary_value: bytes | None = None


class EmptyAttributeError(Invalid):
    """`str` is SNS's message for an empty attribute; SQS words it differently."""

    def __init__(self, name: str, kind: str) -> None:
        super().__init__(
            f"The message attribute '{name}' must contain non-empty message attribute value for "
            f"message attribute type '{kind}'."
        )
        self.name = name
        self.kind = kind


def is_text(text: str) -> bool:
    """Checks for XML 1.0's characters, the only ones in messages."""
    return _NOT_TEXT.search(text) is None


def read_attributes(attributes: dict[str, Any]) -> dict[str, MessageAttribute]:
    """Raises Invalid."""
    return {name: _read(name, value) for name, value in attributes.items()}


def read_group_id(group_id: str | None) -> str | None:
    """Raises Invalid."""
    if group_id is not None and not _GROUP_ID.fullmatch(group_id):
        raise Invalid(
            "MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128 in "
            "length."
        )
    return group_id


def attributes_size(attributes: dict[str, MessageAttribute]) -> int:
    """Returns bytes, as counted towards the message limit."""
    return sum(
        len(name.encode())
        + len(attribute.data_type.encode())
        + len((attribute.string_value or "").encode())
        + len(attribute.binary_value or b"")
        for name, attribute in attributes.items()
    )


def _read(name: str, attribute: dict[str, Any]) -> MessageAttribute:
    if not _NAME.fullmatch(name) or _RESERVED.match(name):
        raise Invalid(
            f"The message attribute name '{name[:64]}' is invalid. Names have up to 256 letters, "
            "digits, hyphens, underscores and periods, and do not begin with AWS. or Amazon."
        )
    kind = attribute.get("DataType", "")
    if not _TYPE.fullmatch(kind) or len(kind) > _MAX_TYPE_LENGTH:
        raise Invalid(
            f"The message attribute '{name}' has an invalid message attribute type, the set of "
            "supported type prefixes is Binary, Number, and String."
        )
    if kind.startswith("Binary"):
        return MessageAttribute(kind, binary_value=_binary(name, kind, attribute))
    return MessageAttribute(kind, string_value=_string(name, kind, attribute))


def _binary(name: str, kind: str, attribute: dict[str, Any]) -> bytes:
    value = attribute.get("BinaryValue")
    if not value:
        raise EmptyAttributeError(name, kind)
    return bytes(value)


def _string(name: str, kind: str, attribute: dict[str, Any]) -> str:
    value = attribute.get("StringValue")
    if not value:
        raise EmptyAttributeError(name, kind)
    if not is_text(value):
        raise Invalid(
            f"The value of message attribute '{name}' has characters that are not allowed."
        )
    if kind.startswith("Number"):
        try:
            float(value)
        except ValueError:
            raise Invalid(f"Could not cast message attribute '{name}' value to number.") from None
    return str(value)
