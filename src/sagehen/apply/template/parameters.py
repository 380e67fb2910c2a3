"""Reads parameters and checks their constraints."""

import re
from collections.abc import Mapping, Sequence

from sagehen.apply.template.reading import Written
from sagehen.apply.template.template import Parameter
from sagehen.base.errors import Invalid

__all__ = ["Secret", "Value", "parameter_values", "read_assignments", "text_of"]


class Secret(str):
    """A value made from a NoEcho parameter, never to be shown."""

    __slots__ = ()


Value = str | list[str]

_TYPES = ("String", "Number", "List<Number>", "CommaDelimitedList")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def read_assignments(assignments: Sequence[str]) -> dict[str, str]:
    """Reads `NAME=VALUE` items; raises Invalid for another form or a repeated name."""
    values: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise Invalid(f"--parameter takes NAME=VALUE, not {assignment!r}.")
        if name in values:
            raise Invalid(f"The parameter {name} is given twice.")
        values[name] = value
    return values


def parameter_values(
    declared: Mapping[str, Parameter], assigned: Mapping[str, str]
) -> dict[str, Value]:
    """Returns all parameters' values; strips list items.

    Raises Invalid for unknown, missing or wrong parameters.
    """
    unknown = [name for name in assigned if name not in declared]
    if unknown:
        raise Invalid(f"Parameters: [{', '.join(unknown)}] do not exist in the template")
    missing = [
        name
        for name, parameter in declared.items()
        if name not in assigned and parameter.default is None
    ]
    if missing:
        raise Invalid(
            f"Parameters: [{', '.join(missing)}] must have values. Give them with --parameter "
            "NAME=VALUE."
        )
    return {
        name: _value(
            name, parameter, assigned[name] if name in assigned else _default(name, parameter)
        )
        for name, parameter in declared.items()
    }


def text_of(value: object) -> str | None:
    """Writes a scalar as CloudFormation does; returns None for other values."""
    if isinstance(value, str):
        return value  # keeps a Secret
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Written):
        return value.text
    return str(value) if isinstance(value, int | float) else None


def _default(name: str, declared: Parameter) -> str:
    default = declared.default
    text = text_of(default)
    if text is None and isinstance(default, list):
        parts = [text_of(item) for item in default]
        text = ",".join(item for item in parts if item is not None)
    if text is None:
        raise Invalid(
            "Template format error: Every Default member must be a string. "
            f"(/Parameters/{name}/Default)"
        )
    return text


def _value(name: str, declared: Parameter, text: str) -> Value:
    if declared.type not in _TYPES:
        raise Invalid(
            f"Template format error: Unrecognized parameter type: {declared.type} "
            f"(/Parameters/{name}). Sagehen has {', '.join(_TYPES)}."
        )
    if declared.type in ("String", "Number"):
        _check(name, declared, text, is_number=declared.type == "Number")
        return Secret(text) if declared.is_secret else text
    items = [item.strip() for item in text.split(",")] if text else []
    for item in items:
        _check(name, declared, item, is_number=declared.type == "List<Number>")
    return [Secret(item) for item in items] if declared.is_secret else items


def _check(name: str, declared: Parameter, text: str, *, is_number: bool) -> None:
    if is_number and not _NUMBER.fullmatch(text):
        raise Invalid(f"Parameter '{name}' must be a number, not {_shown(declared, text)}.")
    reason = (
        _outside_values(declared, text)
        or _outside_pattern(name, declared, text)
        or (_outside_numbers if is_number else _outside_lengths)(name, declared, text)
    )
    if reason:
        raise Invalid(f"Parameter '{name}' {declared.constraint_description or reason}.")


def _shown(declared: Parameter, text: str) -> str:
    return "****" if declared.is_secret else repr(text)


def _outside_values(declared: Parameter, text: str) -> str | None:
    if declared.allowed_values is None:
        return None
    allowed = [text_of(value) for value in declared.allowed_values]
    return (
        None if text in allowed else f"must be one of AllowedValues: {', '.join(map(str, allowed))}"
    )


def _outside_pattern(name: str, declared: Parameter, text: str) -> str | None:
    if declared.allowed_pattern is None:
        return None
    try:
        matches = re.fullmatch(declared.allowed_pattern, text)
    except re.error as error:
        raise Invalid(
            f"Template format error: the AllowedPattern of /Parameters/{name} is no regular "
            f"expression: {error}."
        ) from error
    return None if matches else f"must match pattern {declared.allowed_pattern}"


def _outside_lengths(name: str, declared: Parameter, text: str) -> str | None:
    minimum, maximum = (_bound(name, bound) for bound in (declared.min_length, declared.max_length))
    words = "must contain at least {:g} characters", "must contain at most {:g} characters"
    return _outside(len(text), minimum, maximum, *words)


def _outside_numbers(name: str, declared: Parameter, text: str) -> str | None:
    minimum, maximum = (_bound(name, bound) for bound in (declared.min_value, declared.max_value))
    words = "must be a number not less than {:g}", "must be a number not greater than {:g}"
    return _outside(float(text), minimum, maximum, *words)


def _outside(
    number: float, minimum: float | None, maximum: float | None, too_little: str, too_much: str
) -> str | None:
    if minimum is not None and number < minimum:
        return too_little.format(minimum)
    if maximum is not None and number > maximum:
        return too_much.format(maximum)
    return None


def _bound(name: str, written: object) -> float | None:
    if written is None:
        return None
    text = text_of(written)
    if text is None or not _NUMBER.fullmatch(text):
        raise Invalid(
            f"Template format error: a length or value of /Parameters/{name} must be a number, "
            f"not {text}."
        )
    return float(text)
