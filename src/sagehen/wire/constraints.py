"""The constraints that a shape puts on one value, each with AWS's sentence for it."""

from collections.abc import Callable
from typing import Any

import msgspec

from sagehen.wire.patterns import compile_pattern
from sagehen.wire.services import Shape

__all__ = ["Constraint", "constraints_of"]

_NUMBERS = ("integer", "long", "float", "double")

_CHECKED_BY_SERVICE = frozenset({"QueueAttributeName", "MessageSystemAttributeName"})
"""Shapes whose enum is not AWS's check: SQS has an error of its own for an unknown attribute, and
takes names of both shapes in ReceiveMessage's AttributeNames, whose model lists only the first."""


class Constraint(msgspec.Struct, frozen=True):
    """A test and what it asks for."""

    text: str
    holds: Callable[[Any], bool]
    is_final: bool = False
    """Nothing further is tested once it fails: a pattern is only run over values of a bounded
    length, since some take very long over a hostile one."""


def constraints_of(shape: Shape) -> list[Constraint]:
    """In the order in which AWS tells of them: upper bound, lower bound, pattern, values.

    Raises:
        Untranslatable: the shape has a pattern that cannot be tested.
    """
    kind = "value" if shape.type_name in _NUMBERS else "length"
    measure = _value if kind == "value" else len
    found = []
    if (most := shape.metadata.get("max")) is not None:
        found.append(_at_most(kind, measure, most))
    if (least := shape.metadata.get("min")) is not None:
        found.append(_at_least(kind, measure, least))
    if pattern := shape.metadata.get("pattern"):
        found.append(_matching(pattern))
    values = getattr(shape, "enum", None)
    if values and shape.name not in _CHECKED_BY_SERVICE:
        found.append(_among(list(values)))
    return found


def _at_most(kind: str, measure: Callable[[Any], float], most: float) -> Constraint:
    return Constraint(
        f"Member must have {kind} less than or equal to {most}",
        lambda value: measure(value) <= most,
        is_final=True,
    )


def _at_least(kind: str, measure: Callable[[Any], float], least: float) -> Constraint:
    return Constraint(
        f"Member must have {kind} greater than or equal to {least}",
        lambda value: measure(value) >= least,
    )


def _matching(pattern: str) -> Constraint:
    compiled = compile_pattern(pattern)
    return Constraint(
        f"Member must satisfy regular expression pattern: {pattern}",
        lambda value: compiled.fullmatch(value) is not None,
    )


def _among(values: list[str]) -> Constraint:
    allowed = frozenset(values)
    return Constraint(
        f"Member must satisfy enum value set: [{', '.join(values)}]", allowed.__contains__
    )


def _value(value: Any) -> float:
    return float(value)
