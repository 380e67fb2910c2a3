"""Checks parameters against their model's constraints, in AWS's wording."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from sagehen.wire.errors import AwsError
from sagehen.wire.services import OperationModel, Shape
from sagehen.wire.validation.patterns import compile_pattern

__all__ = ["Constraint", "constraints_of", "invalid_code", "validate"]

_NUMBERS = ("integer", "long", "float", "double")

_CHECKED_BY_SERVICE = frozenset({"QueueAttributeName", "MessageSystemAttributeName"})
"""Shapes whose enum is not checked here: SQS has its own error for unknown attributes, and takes
names of both shapes in AttributeNames, whose model lists only the first."""


class Constraint(msgspec.Struct, frozen=True):
    """A test and its message."""

    text: str
    holds: Callable[[Any], bool]
    is_final: bool = False
    """Stops further tests: patterns run only over bounded values, as some take very long on hostile
    input."""


def constraints_of(shape: Shape) -> list[Constraint]:
    """Returns constraints in AWS's order: upper bound, lower bound, pattern, values. Raises
    Untranslatable."""
    kind = "value" if shape.type_name in _NUMBERS else "length"
    measure = _value if kind == "value" else len
    constraints = []
    if (most := shape.metadata.get("max")) is not None:
        constraints.append(_at_most(kind, measure, most))
    if (least := shape.metadata.get("min")) is not None:
        constraints.append(_at_least(kind, measure, least))
    if pattern := shape.metadata.get("pattern"):
        constraints.append(_matching(pattern))
    values = getattr(shape, "enum", None)
    if values and shape.name not in _CHECKED_BY_SERVICE:
        constraints.append(_among(list(values)))
    return constraints


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


_MOST_ERRORS = 50
"""per response"""
_LONGEST_VALUE = 512
_MISSING = "Member must not be null"

Fault = tuple[str, Any, str]
"""path, value, and the constraint's message"""
Check = Callable[[str, Any], Iterator[Fault]]


def validate(operation: OperationModel, params: dict[str, Any]) -> None:
    """Raises an AwsError of all violations, like `2 validation errors detected: Value 'x' at
    'productionVariants.1.member.modelName' failed to satisfy constraint: …; Value …`."""
    shape = operation.input_shape
    if shape is None:
        return
    faults = []
    for fault in _check_of(shape)("", params):
        if fault[2] == _MISSING and operation.service_model.service_name == "sqs":
            raise _missing_of_sqs(fault[0])
        faults.append(_say(*fault))
        if len(faults) == _MOST_ERRORS:
            break
    if faults:
        errors = "error" if len(faults) == 1 else "errors"
        message = f"{len(faults)} validation {errors} detected: {'; '.join(faults)}"
        raise AwsError(invalid_code(operation), message, 400)


def _missing_of_sqs(path: str) -> AwsError:
    """`path` is such as `entries.1.member.id`."""
    names = [part[:1].upper() + part[1:] for part in path.split(".") if part != "member"]
    message = f"The request must contain the parameter {'.'.join(names)}."
    return AwsError("MissingParameter", message, 400)


def invalid_code(operation: OperationModel) -> str:
    """Returns the code of the service's errors for invalid parameters."""
    model = operation.service_model
    if model.service_name == "logs":
        return "InvalidParameterException"
    if model.protocol == "json" and not model.is_query_compatible:
        return "ValidationException"
    return "InvalidArgument" if model.service_name == "s3" else "ValidationError"


def _say(path: str, value: Any, constraint: str) -> str:
    return f"{_shown(value)} at '{path}' failed to satisfy constraint: {constraint}"


def _shown(value: Any) -> str:
    if value is None:
        return "Value null"
    text = _plain(value)
    if len(text) > _LONGEST_VALUE:
        text = text[:_LONGEST_VALUE] + "…"
    return f"Value '{text}'"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}={_plain(v)}" for k, v in list(value.items())[:100]) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_plain(item) for item in value[:100]) + "]"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_of(shape: Shape) -> Check:
    """Cached by name, as a member's own traits do not constrain its value."""
    return _compiled(_ByName(shape))


class _ByName:
    """Compares shapes by name and service."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._key = (shape.name, id(shape._shape_resolver))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByName) and other._key == self._key


@functools.cache
def _compiled(named: _ByName) -> Check:
    shape = named.shape
    own = constraints_of(shape)
    return _KINDS.get(shape.type_name, _scalar)(shape, own)


def _scalar(_: Shape, own: list[Constraint]) -> Check:
    def check(path: str, value: Any) -> Iterator[Fault]:
        for constraint in own:
            if not constraint.holds(value):
                yield path, value, constraint.text
                if constraint.is_final:
                    return

    return check


def _structure(shape: Shape, _: list[Constraint]) -> Check:
    members = [(name, _lower(name), member) for name, member in shape.members.items()]
    required = [(name, _lower(name)) for name in shape.required_members]
    is_union = shape.is_tagged_union
    choices = ", ".join(lowered for _, lowered, _ in members)

    def check(path: str, value: Any) -> Iterator[Fault]:
        above = f"{path}." if path else ""
        for name, lowered in required:
            if value.get(name) is None:
                yield above + lowered, None, _MISSING
        if is_union and len(value) != 1:
            yield path, value, f"Member must have exactly one of its members set: [{choices}]"
        for name, lowered, member in members:
            if (inner := value.get(name)) is not None:
                yield from _check_of(member)(above + lowered, inner)

    return check


def _list(shape: Shape, own: list[Constraint]) -> Check:
    count = _scalar(shape, own)
    if shape.member.type_name in _KINDS:
        member = shape.member

        def check(path: str, value: Any) -> Iterator[Fault]:
            yield from count(path, value)
            for position, item in enumerate(value, 1):
                yield from _check_of(member)(f"{path}.{position}.member", item)

        return check
    constraints = _of_each(shape.member, "Member must satisfy constraint")

    def check_scalars(path: str, value: Any) -> Iterator[Fault]:
        yield from count(path, value)
        if not all(_holds(shape.member, item) for item in value):
            yield path, value, constraints

    return check_scalars


def _map(shape: Shape, own: list[Constraint]) -> Check:
    count = _scalar(shape, own)
    keys = _of_each(shape.key, "Map keys must satisfy constraint")
    values = _of_each(shape.value, "Map value must satisfy constraint")
    nested = shape.value.type_name in _KINDS

    def check(path: str, value: Any) -> Iterator[Fault]:
        yield from count(path, value)
        if not all(_holds(shape.key, key) for key in value):
            yield path, value, keys
        if nested:
            for key, item in value.items():
                yield from _check_of(shape.value)(f"{path}.{key}.member", item)
        elif not all(_holds(shape.value, item) for item in value.values()):
            yield path, value, values

    return check


_KINDS: dict[str, Callable[[Shape, list[Constraint]], Check]] = {
    "structure": _structure,
    "list": _list,
    "map": _map,
}


def _holds(shape: Shape, value: Any) -> bool:
    return next(_check_of(shape)("", value), None) is None


def _of_each(shape: Shape, opening: str) -> str:
    """AWS names all constraints of a collection's scalars when one fails."""
    return f"{opening}: [{', '.join(constraint.text for constraint in constraints_of(shape))}]"


def _lower(name: str) -> str:
    return name[0].lower() + name[1:]
