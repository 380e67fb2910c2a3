"""Header fields as a mapping, the way signatures are made over them."""

from collections.abc import Sequence

__all__ = ["as_meant", "joined_fields"]

_NAMES_REMEMBERED = 1024
_LONGEST_REMEMBERED = 128
"""Bytes: names come from anybody at all, and may be as long as a head."""


class _Names(dict[bytes, str]):
    """Names in lower case, by the name as sent."""

    def __missing__(self, name: bytes) -> str:
        if len(self) >= _NAMES_REMEMBERED:
            self.clear()
        lower = name.decode("latin-1").lower()
        if len(name) <= _LONGEST_REMEMBERED:
            self[name] = lower
        return lower


_names = _Names()


def joined_fields(fields: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Names in lower case; values of repeated fields joined by commas."""
    headers = {_names[name]: value.decode("latin-1") for name, value in fields}
    if len(headers) != len(fields):
        headers.clear()
        for raw_name, raw_value in fields:
            name, value = _names[raw_name], raw_value.decode("latin-1")
            headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


def as_meant(value: str) -> str:
    """A value as its sender means it: HTTP's fields are latin-1, and the SDKs send UTF-8.

    What is not UTF-8 stays as it came.
    """
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value
