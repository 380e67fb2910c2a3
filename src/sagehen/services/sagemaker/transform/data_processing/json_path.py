"""The part of JSONPath that filters of transform jobs may use.

    $   .name   .*   ['name']   ['name','other']   [*]   [0]   [0,-1]   [1:4]

The end of a range is exclusive, as in Jayway's library, which SageMaker's guide refers to.
"""

import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = [
    "MixedRanges",
    "PartMissing",
    "Path",
    "PathSyntaxError",
    "Positions",
    "Wildcard",
    "parse_path",
    "part_selector",
]


class PathSyntaxError(Exception):
    """The expression is no JSONPath of this kind."""


class MixedRanges(Exception):
    """The path has a range beside other ranges or indexes: SageMaker refuses to run it."""

    def __init__(self, brackets: str) -> None:
        super().__init__(brackets)
        self.brackets = brackets


class PartMissing(Exception):
    """A value lacks what a path selects."""


class Names(NamedTuple):
    names: tuple[str, ...]


class Positions(NamedTuple):
    parts: tuple[int | slice, ...]


class Wildcard(NamedTuple):
    """`*`"""


Step = Names | Positions | Wildcard


class Path(NamedTuple):
    steps: tuple[Step, ...]
    """none: the value itself"""


MAX_COPIES = 16
"""that a path may select of one value: indexes may be repeated, and each step multiplies"""

_TOKEN = re.compile(
    r"""\.(?P<name>[^.\[\]*'\s,:$]+)
      | (?P<any>\.\*|\[\s*\*\s*\])
      | \[\s*(?P<names>'[^']*'(?:\s*,\s*'[^']*')*)\s*\]
      | \[(?P<positions>[-\d:,\s]+)\]
    """,
    re.VERBOSE,
)
_PART = re.compile(r"\s*(?:(?P<start>-?\d+)?\s*(?P<colon>:)\s*(?P<end>-?\d+)?|(?P<at>-?\d+))\s*")


def parse_path(expression: str, *, inclusive: bool = False, mixed: bool = False) -> Path:
    """Raises PathSyntaxError, and MixedRanges unless those are allowed."""
    if not expression.startswith("$"):
        raise PathSyntaxError('JsonPath has to begin with "$".')
    steps: list[Step] = []
    text = expression.strip()
    at = 1
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise PathSyntaxError(f'"{text[at:]}" cannot follow "{text[:at]}" in JsonPath.')
        steps.append(_step(token, inclusive=inclusive, mixed=mixed))
        at = token.end()
    copies = math.prod(map(_copies, steps))
    if copies > MAX_COPIES:
        raise PathSyntaxError(
            f"It may select one value {copies} times, but {MAX_COPIES} times is the most: repeat "
            "fewer indexes."
        )
    return Path(tuple(steps))


def _copies(step: Step) -> int:
    """Returns how often a step may select the same value at most."""
    if not isinstance(step, Positions):
        return 1
    ranges = sum(isinstance(part, slice) for part in step.parts)
    counts = Counter(part for part in step.parts if isinstance(part, int))
    from_start = max((count for at, count in counts.items() if at >= 0), default=0)
    from_end = max((count for at, count in counts.items() if at < 0), default=0)
    return ranges + from_start + from_end


def _step(token: re.Match[str], *, inclusive: bool, mixed: bool) -> Step:
    if token["name"]:
        return Names((token["name"],))
    if token["any"]:
        return Wildcard()
    if token["names"]:
        names = tuple(re.findall("'([^']*)'", token["names"]))
        if nested := [name for name in names if "." in name or not name]:
            raise PathSyntaxError(f"Names in brackets cannot be nested or empty: '{nested[0]}'.")
        return Names(names)
    parts = [_PART.fullmatch(part) for part in token["positions"].split(",")]
    if not all(parts):
        raise PathSyntaxError(f'"{token[0]}" is neither a list of indexes nor a range.')
    found = [part for part in parts if part]
    if len(found) > 1 and not mixed and any(part["colon"] for part in found):
        raise MixedRanges(token[0])
    return Positions(tuple(_position(part, inclusive=inclusive) for part in found))


def _position(part: re.Match[str], *, inclusive: bool) -> int | slice:
    if part["at"]:
        return int(part["at"])
    start, end = (int(bound) if bound else None for bound in part.group("start", "end"))
    if inclusive and end is not None:
        end = None if end == -1 else end + 1
    return slice(start, end)


def part_selector(path: Path) -> Callable[[list[Any]], list[Any]]:
    """Returns a function from JSON values to what the path selects in each.

    That is one value for a path of names and single indexes, an object for a list of names at the
    end, which may lack some of them, and else a list. The function raises PartMissing.
    """
    select = _select(path.steps)
    return lambda values: list(map(select, values))


def _select(steps: tuple[Step, ...]) -> Callable[[Any], Any]:
    if not steps:
        return lambda value: value
    step, rest = steps[0], _select(steps[1:])
    is_last = len(steps) == 1
    match step:
        case Names((name,)):
            return lambda value: rest(_member(value, name))
        case Names(names) if is_last:
            return lambda value: _members(value, names)
        case Names(names):
            return lambda value: [rest(part) for part in _members(value, names).values()]
        case Positions((int(at),)):
            return lambda value: rest(_element(value, at))
        case Positions(parts):
            return lambda value: [rest(part) for part in _elements(value, parts)]
        case _:
            return lambda value: [rest(part) for part in _all(value)]


def _member(value: Any, name: str) -> Any:
    if type(value) is not dict or name not in value:
        raise PartMissing(f'it has no "{name}"')
    return value[name]


def _members(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    found = {name: value[name] for name in names if name in value} if type(value) is dict else {}
    if not found:
        raise PartMissing("it has none of " + ", ".join(f'"{name}"' for name in names))
    return found


def _element(value: Any, at: int) -> Any:
    if type(value) is not list or not -len(value) <= at < len(value):
        raise PartMissing(f"it has no element [{at}]")
    return value[at]


def _elements(value: Any, parts: tuple[int | slice, ...]) -> list[Any]:
    if type(value) is not list:
        raise PartMissing("it is no array where the filter has indexes")
    found: list[Any] = []
    for part in parts:
        if isinstance(part, slice):
            found += value[part]
        else:
            found.append(_element(value, part))
    return found


def _all(value: Any) -> list[Any]:
    if type(value) is dict:
        return list(value.values())
    if type(value) is not list:
        raise PartMissing('it is no array or object where the filter has "*"')
    return value
