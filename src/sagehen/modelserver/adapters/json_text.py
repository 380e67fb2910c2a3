"""JSON of large answers, written so that other threads have their turn in between."""

import json
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

__all__ = ["json_text"]

PIECE = 10_000
"""Values written by one call of `json`, some ten milliseconds: it keeps the interpreter to itself
for so long, and the server must answer `/ping` meanwhile."""


def json_text(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """What `json.dumps(value, default=default)` gives. Raises what that raises."""
    if _size(value) <= PIECE:
        return json.dumps(value, default=default)
    return "".join(_pieces(value, default))


def _pieces(value: Any, default: Callable[[Any], Any] | None) -> Iterator[str]:
    size = _size(value)
    if size <= PIECE:
        yield json.dumps(value, default=default)
    elif isinstance(value, dict):
        for at, (key, item) in enumerate(value.items()):
            yield ", " if at else "{"
            yield json.dumps({key: None})[1 : -len("null}")]
            yield from _pieces(item, default)
        yield "}"
    else:
        step = len(value) * PIECE // size
        for at in range(0, len(value), max(step, 1)):
            yield ", " if at else "["
            if step > 1:
                yield json.dumps(value[at : at + step], default=default)[1:-1]
            else:
                yield from _pieces(value[at], default)
        yield "]"


def _size(value: Any) -> int:
    """About how many values: of a list, as many as if all its items were like the first."""
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return len(value) * max(_size(value[0]), 1) if value else 0
    if hasattr(value, "tolist") and hasattr(value, "shape"):
        return prod(value.shape)
    return 1
