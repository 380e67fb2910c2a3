"""JSON paths as EventBridge has them: `$`, `$.detail.name`, `$.resources[0]`, `$.detail['a-b']`."""

import functools
import re
from typing import Any, Final

from sagehen.errors import Invalid

__all__ = ["NOTHING", "find", "read_path"]

NOTHING: Final = object()
"""What is found where there is nothing."""

_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]'"*\s]+) | \[(?P<place>\d{1,9})\] | \[(?P<all>\*)\]
    | \[(?P<quote>['"])(?P<quoted>[^'"]+)(?P=quote)\]""",
    re.VERBOSE,
)
_Step = str | int | None
"""A key, a place in a list, or None: all that is in a list."""


@functools.lru_cache(maxsize=1024)
def read_path(text: str) -> tuple[_Step, ...]:
    """The steps of a path; raises Invalid where it is none."""
    if not text.startswith("$"):
        raise Invalid(f"a JSON path begins with $, not as {text[:64]!r}")
    steps: list[_Step] = []
    place = 1
    while place < len(text):
        found = _STEP.match(text, place)
        if found is None:
            raise Invalid(f"the JSON path {text!r} cannot be read from character {place + 1} on")
        if found["place"] is not None:
            steps.append(int(found["place"]))
        else:
            steps.append(None if found["all"] else found["name"] or found["quoted"])
        place = found.end()
    return tuple(steps)


def find(path: str, value: Any) -> Any:
    """What the path leads to in `value`; NOTHING where there is nothing."""
    return _find(read_path(path), value)


def _find(steps: tuple[_Step, ...], value: Any) -> Any:
    for number, step in enumerate(steps):
        if step is None:
            if not isinstance(value, list):
                return NOTHING
            found = [_find(steps[number + 1 :], one) for one in value]
            return [one for one in found if one is not NOTHING]
        if isinstance(step, int):
            if not isinstance(value, list) or step >= len(value):
                return NOTHING
            value = value[step]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return NOTHING
    return value
