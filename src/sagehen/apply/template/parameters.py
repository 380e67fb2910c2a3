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


def read_assignments(given: Sequence[str]) -> dict[str, str]:
    """Reads `NAME=VALUE` items; raises Invalid for another form or a repeated name."""
    found: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise Invalid(f"--parameter takes NAME=VALUE, not {one!r}.")
        if name in found:
            raise Invalid(f"The parameter {name} is given twice.")
        found[name] = value
    return found


def parameter_values(
    declared: Mapping[str, Parameter], given: Mapping[str, str]
) -> dict[str, Value]:
    """Returns all parameters' values; strips list items.

    Raises Invalid for unknown, missing or wrong parameters.
    """
    unknown = [name for name in given if name not in declared]
    if unknown:
        raise Invalid(f"Parameters: [{', '.join(unknown)}] do not exist in the template")
    missing = [name for name, one in declared.items() if name not in given and one.default is None]
    if missing:
        raise Invalid(
            f"Parameters: [{', '.join(missing)}] must have values. Give them with --parameter "
            "NAME=VALUE."
        )
    return {
        name: _value(name, one, given[name] if name in given else _default(name, one))
        for name, one in declared.items()
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
        parts = [text_of(one) for one in default]
        text = ",".join(one for one in parts if one is not None)
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
    items = [one.strip() for one in text.split(",")] if text else []
    for one in items:
        _check(name, declared, one, is_number=declared.type == "List<Number>")
    return [Secret(one) for one in items] if declared.is_secret else items


def _check(name: str, declared: Parameter, text: str, *, is_number: bool) -> None:
    if is_number and not _NUMBER.fullmatch(text):
        raise Invalid(f"Parameter '{name}' must be a number, not {_shown(declared, text)}.")
    why = (
        _outside_values(declared, text)
        or _outside_pattern(name, declared, text)
        or (_outside_numbers if is_number else _outside_lengths)(name, declared, text)
    )
    if why:
        raise Invalid(f"Parameter '{name}' {declared.constraint_description or why}.")


def _shown(declared: Parameter, text: str) -> str:
    return "****" if declared.is_secret else repr(text)


def _outside_values(declared: Parameter, text: str) -> str | None:
    if declared.allowed_values is None:
        return None
    allowed = [text_of(one) for one in declared.allowed_values]
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
    least, most = (_bound(name, one) for one in (declared.min_length, declared.max_length))
    words = "must contain at least {:g} characters", "must contain at most {:g} characters"
    return _outside(len(text), least, most, *words)


def _outside_numbers(name: str, declared: Parameter, text: str) -> str | None:
    least, most = (_bound(name, one) for one in (declared.min_value, declared.max_value))
    words = "must be a number not less than {:g}", "must be a number not greater than {:g}"
    return _outside(float(text), least, most, *words)


def _outside(
    found: float, least: float | None, most: float | None, too_little: str, too_much: str
) -> str | None:
    if least is not None and found < least:
        return too_little.format(least)
    if most is not None and found > most:
        return too_much.format(most)
    return None


def _bound(name: str, written: object) -> float | None:
    if written is None:
        return None
    text = text_of(written)
    if text is None or not _NUMBER.fullmatch(text):
        raise Invalid(
            f"Template format error: a length or value of /Parameters/{name} is no number: {text}."
        )
    return float(text)
