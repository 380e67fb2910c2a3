"""Reads single values strictly, and writes dates and numbers as text."""

import base64
import binascii
import math
import re
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any

__all__ = [
    "MalformedValue",
    "UnknownMember",
    "as_meant",
    "as_utc",
    "blob",
    "boolean",
    "date_text",
    "integer",
    "number",
    "number_text",
    "timestamp",
]

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_BITS = {"integer": 31, "long": 63}
_MAX_SHOWN_BITS = 1024


class MalformedValue(Exception):
    """A value cannot be read; the message completes a sentence. The value's path may follow it in
    the arguments."""

    def inside(self, name: str) -> "MalformedValue":
        reason, *path = self.args
        return type(self)(reason, name, *path)


class UnknownMember(MalformedValue):
    """A structure holds a member that its shape does not have, as those of newer clients do.

    It is refused by name: a member that is ignored looks as if it had its effect.
    """


def as_meant(value: str) -> str:
    """Decodes UTF-8, which the SDKs send, from a latin-1 header; leaves other values unchanged."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


def integer(value: Any, type_name: str) -> int:
    """`type_name` is `integer` (32 bits) or `long` (64)."""
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedValue(f"{_shown(value)} is not an integer")
    bound = 1 << _BITS.get(type_name, 63)
    if not -bound <= value < bound:
        raise MalformedValue(f"{_shown(value)} is out of the range of the type {type_name}")
    return value


def number(value: Any) -> float:
    """Accepts numbers and the three strings for those that JSON lacks."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise MalformedValue(f"{_shown(value)} is not a number") from None
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise MalformedValue(f"{_shown(value)} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise MalformedValue(f"{_shown(value)} is out of range") from None


def boolean(value: Any) -> bool:
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise MalformedValue(f"{_shown(value)} is neither true nor false")
    return value


def blob(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise MalformedValue(f"{_shown(value)} is not in base64") from None


def timestamp(value: Any) -> datetime:
    """Takes seconds since the epoch, ISO 8601, HTTP dates or a datetime."""
    try:
        if isinstance(value, datetime):
            return as_utc(value)
        return _seconds(value) if isinstance(value, (int, float)) else _date(value)
    except (ValueError, OverflowError, OSError, TypeError):
        raise MalformedValue(f"{_shown(value)} is not a date") from None


def as_utc(value: datetime | float) -> datetime:
    """Takes a naive datetime as UTC."""
    if not isinstance(value, datetime):
        return datetime.fromtimestamp(value, UTC)
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


def number_text(value: float) -> str:
    """Uses Smithy's words for the numbers that JSON lacks."""
    if math.isfinite(value):
        return str(float(value))
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def date_text(value: datetime | float, form: str) -> str:
    """`form` is a `timestampFormat` of the models, or `iso8601-milliseconds` as in S3's XML, which
    has no fractions."""
    moment = as_utc(value)
    if form == "rfc822":
        return format_datetime(moment, usegmt=True)
    if form.lower() == "unixtimestamp":
        return f"{round(moment.timestamp(), 3):.15g}"
    plain = moment.replace(tzinfo=None)
    if form == "iso8601-milliseconds":
        return plain.isoformat(timespec="seconds") + ".000Z"
    return plain.isoformat() + "Z"


def _seconds(value: float) -> datetime:
    if isinstance(value, bool) or not math.isfinite(value):
        raise ValueError
    return datetime.fromtimestamp(value, UTC)


def _date(text: str) -> datetime:
    try:
        return _seconds(float(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = parsedate_to_datetime(text)
    return as_utc(moment)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f"'{value[:64]}'"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and value.bit_length() > _MAX_SHOWN_BITS:
        return "the number"  # Python writes only numbers of up to 4300 digits.
    if isinstance(value, (int, float)):
        return str(value)[:64]
    return "the value"
