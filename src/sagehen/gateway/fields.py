"""Header fields as a mapping, the way signatures are made over them."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["ByName", "joined_fields"]

Value = TypeVar("Value")

_NAMES_REMEMBERED = 1024
_LONGEST_REMEMBERED = 128
"""Bytes: names come from anybody at all, and may be as long as a head."""


class ByName(dict[bytes, Value], Generic[Value]):
    """What follows from a header's name as it was sent, found out once."""

    __slots__ = ("_find_out",)

    def __init__(self, find_out: Callable[[bytes], Value]) -> None:
        super().__init__()
        self._find_out = find_out

    def __missing__(self, name: bytes) -> Value:
        if len(self) >= _NAMES_REMEMBERED:
            self.clear()
        value = self._find_out(name)
        if len(name) <= _LONGEST_REMEMBERED:
            self[name] = value
        return value


_names = ByName(lambda name: name.decode("latin-1").lower())


def joined_fields(fields: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Names in lower case; values of repeated fields joined by commas."""
    headers = {_names[name]: value.decode("latin-1") for name, value in fields}
    if len(headers) != len(fields):
        headers.clear()
        for raw_name, raw_value in fields:
            name, value = _names[raw_name], raw_value.decode("latin-1")
            headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers
