r"""Compiles the values and operators in a filter's lists into tests.

In a `wildcard`, `*` matches any characters or none; `\*` and `\\` are literal.
"""

import ipaddress
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from sagehen.base.errors import Invalid

__all__ = [
    "ABSENT",
    "EVENT_PATTERN",
    "FILTER_POLICY",
    "STORED_PATTERN",
    "Condition",
    "Dialect",
    "read_condition",
    "read_wildcard",
]


@dataclass(frozen=True)
class Dialect:
    """Differences between SNS filter policies and EventBridge patterns."""

    largest_number: float
    """bound of numbers, either side of zero"""
    decimals: int
    """decimal places compared"""
    wildcards: bool
    """allows `wildcard`, and `equals-ignore-case` in `prefix` and `suffix`"""
    empty_affixes: bool
    """`prefix` and `suffix` may be empty"""
    simple_wildcards: bool = True
    """refuses a `wildcard` that is too complex"""


FILTER_POLICY = Dialect(largest_number=1e9, decimals=5, wildcards=False, empty_affixes=False)
"""SNS's developer guide, sns-subscription-filter-policies"""

EVENT_PATTERN = Dialect(largest_number=5e9, decimals=6, wildcards=True, empty_affixes=True)
"""EventBridge's user guide, eb-create-pattern-operators, and its matcher, aws/event-ruler"""

STORED_PATTERN = replace(EVENT_PATTERN, simple_wildcards=False)
"""of rules, which earlier versions took with any `wildcard`"""


def read_wildcard(text: str) -> Callable[[str], bool]:
    """Matching is linear except for repeats; raises Invalid."""
    first, *rest = _pieces(text)
    if not rest:
        return lambda value: value == first
    *middle, last = rest

    def matches(value: str) -> bool:
        if len(value) < len(first) + len(last):
            return False
        if not (value.startswith(first) and value.endswith(last)):
            return False
        start, end = len(first), len(value) - len(last)
        # The first occurrence leaves most text for the other pieces.
        for piece in middle:
            index = value.find(piece, start, end)
            if index < 0:
                return False
            start = index + len(piece)
        return True

    return matches


def _pieces(text: str) -> list[str]:
    pieces, escaped = [""], False
    for position, character in enumerate(text):
        if escaped:
            if character not in "*\\":
                raise Invalid(f"Invalid escape character at pos {position}")
            pieces[-1] += character
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == "*":
            if pieces[-1] == "" and len(pieces) > 1:
                raise Invalid(f"Consecutive wildcard characters at pos {position - 1}")
            pieces.append("")
        else:
            pieces[-1] += character
    if escaped:
        raise Invalid(f"Invalid escape character at pos {len(text) - 1}")
    return pieces


ABSENT: Final = object()
"""stands for the value of a missing key"""

_IGNORE_CASE = "equals-ignore-case"
_MAX_WILDCARD_PREFIXES = 10

Condition = Callable[[object], bool]


def read_condition(definition: Any, dialect: Dialect) -> Condition:
    """Raises Invalid."""
    if not isinstance(definition, dict):
        return _equal(definition, dialect)
    if len(definition) != 1:
        raise Invalid("Only one key allowed in match expression")
    ((operator, operand),) = definition.items()
    if operator not in _OPERATORS or (operator == "wildcard" and not dialect.wildcards):
        raise Invalid(f"Unrecognized match type {operator}")
    return _OPERATORS[operator](operand, dialect)


def _equal(expected: Any, dialect: Dialect) -> Condition:
    if isinstance(expected, list):
        raise Invalid("Match value must be String, number, true, false, or null")
    if _is_number(expected):
        number = _number(expected, dialect)
        return lambda value: _is_number(value) and _rounded(value, dialect) == number
    # Compare types: in Python, True == 1.
    return lambda value: type(value) is type(expected) and value == expected


def _prefix(operand: Any, dialect: Dialect) -> Condition:
    start, fold = _affix("prefix", operand, dialect)
    return lambda value: isinstance(value, str) and fold(value).startswith(start)


def _suffix(operand: Any, dialect: Dialect) -> Condition:
    end, fold = _affix("suffix", operand, dialect)
    return lambda value: isinstance(value, str) and fold(value).endswith(end)


def _affix(operator: str, operand: Any, dialect: Dialect) -> tuple[str, Callable[[str], str]]:
    """Returns the affix, and how to change a value before comparing."""
    if not dialect.wildcards or not isinstance(operand, dict):
        return _text(operator, operand, empty=dialect.empty_affixes), str
    ((inner, value),) = operand.items() if len(operand) == 1 else (("", None),)
    if inner != _IGNORE_CASE:
        raise Invalid(f"Unsupported {operator} pattern: {inner}")
    return _text(_IGNORE_CASE, value, empty=True).lower(), str.lower


def _equals_ignore_case(operand: Any, dialect: Dialect) -> Condition:
    folded = _text(_IGNORE_CASE, operand, empty=dialect.empty_affixes).lower()
    return lambda value: isinstance(value, str) and value.lower() == folded


def _wildcard(operand: Any, dialect: Dialect) -> Condition:
    text = _text("wildcard", operand, empty=True)
    matches = read_wildcard(text)
    if dialect.simple_wildcards:
        _check_wildcard(text)
    return lambda value: isinstance(value, str) and matches(value)


def _check_wildcard(text: str) -> None:
    """Raises Invalid if one value can match too many prefixes of the text at once, as AWS's matcher
    counts them. Only prefixes that end in a wildcard, or in the commonest character behind one, are
    counted here: fewer than there. AWS does not publish its bound; `*:*:*:*:*:event-bus/*`, which
    it refuses, has 11."""
    _, *behind = _pieces(text)
    beginnings = [piece[0] for piece in behind if piece]
    most = max(map(beginnings.count, beginnings), default=0)
    if len(behind) + most > _MAX_WILDCARD_PREFIXES:
        raise Invalid(
            "Rule is too complex - try using fewer wildcard characters or fewer repeating "
            "character sequences after a wildcard character"
        )


def _anything_but(operand: Any, dialect: Dialect) -> Condition:
    if isinstance(operand, dict):
        unwanted = _but(operand, dialect)
    else:
        values = operand if isinstance(operand, list) else [operand]
        if not values or not all(isinstance(value, str) or _is_number(value) for value in values):
            raise Invalid("anything-but takes a string, a number, or a list of either")
        unwanted = [_equal(value, dialect) for value in values]
    # Numbers, true and null pass, as in event-ruler's Machine.
    return lambda value: value is not ABSENT and not any(test(value) for test in unwanted)


def _but(operand: dict[str, Any], dialect: Dialect) -> list[Condition]:
    ((operator, affixes),) = operand.items() if len(operand) == 1 else (("", None),)
    allowed = [*_UNDER_ANYTHING_BUT, *(["wildcard"] if dialect.wildcards else [])]
    if operator not in allowed:
        known = ", ".join(allowed[:-1]) + f" or {allowed[-1]}"
        raise Invalid(f"anything-but takes only {known} as an object")
    values = affixes if isinstance(affixes, list) else [affixes]
    if not values:
        raise Invalid(f"{operator} under anything-but needs at least one string")
    # Under anything-but, prefixes and suffixes must not be empty.
    empty = dialect.empty_affixes and operator in (_IGNORE_CASE, "wildcard")
    texts = [_text(operator, value, empty) for value in values]
    return [_OPERATORS[operator](value, dialect) for value in texts]


def _exists(operand: Any, _: Dialect) -> Condition:
    if not isinstance(operand, bool):
        raise Invalid("exists match pattern must be either true or false.")
    return lambda value: (value is not ABSENT) is operand


def _cidr(operand: Any, _: Dialect) -> Condition:
    try:
        network = ipaddress.ip_network(_text("cidr", operand), strict=False)
    except ValueError as error:
        raise Invalid(f"cidr: {error}") from None

    def holds(value: object) -> bool:
        if not isinstance(value, str):
            return False
        try:
            return ipaddress.ip_address(value) in network
        except ValueError:
            return False

    return holds


def _numeric(operand: Any, dialect: Dialect) -> Condition:
    if not isinstance(operand, list) or len(operand) not in (2, 4):
        raise Invalid('numeric takes a list such as ["=", 5] or [">", 0, "<=", 5]')
    bounds = [_bound(operand[i], operand[i + 1], dialect) for i in range(0, len(operand), 2)]
    if len(bounds) == 2:
        (first, low), (second, high) = bounds
        if first not in (">", ">=") or second not in ("<", "<="):
            raise Invalid("A numeric range has > or >= first, then < or <=")
        if low >= high:
            raise Invalid("Bottom must be less than top")
    return lambda value: (
        _is_number(value)
        and all(
            _COMPARISONS[operator](_rounded(value, dialect), number) for operator, number in bounds
        )
    )


def _bound(operator: Any, number: Any, dialect: Dialect) -> tuple[str, float]:
    if not isinstance(operator, str) or operator not in _COMPARISONS:
        raise Invalid(f"Unrecognized numeric range operator: {operator}")
    if not _is_number(number):
        raise Invalid(f"Value of {operator} must be numeric")
    return operator, _number(number, dialect)


_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "=": lambda value, number: value == number,
    "<": lambda value, number: value < number,
    "<=": lambda value, number: value <= number,
    ">": lambda value, number: value > number,
    ">=": lambda value, number: value >= number,
}
_OPERATORS: dict[str, Callable[[Any, Dialect], Condition]] = {
    "anything-but": _anything_but,
    "cidr": _cidr,
    _IGNORE_CASE: _equals_ignore_case,
    "exists": _exists,
    "numeric": _numeric,
    "prefix": _prefix,
    "suffix": _suffix,
    "wildcard": _wildcard,
}
_UNDER_ANYTHING_BUT = ("prefix", "suffix", _IGNORE_CASE)


def _text(operator: str, operand: Any, empty: bool = False) -> str:
    if not isinstance(operand, str) or not (operand or empty):
        raise Invalid(f"{operator} match pattern must be a string that is not empty")
    return operand


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value: float, dialect: Dialect) -> float:
    largest = dialect.largest_number
    if abs(value) > largest:
        raise Invalid(f"Value of numeric must be between -{largest:.0f} and {largest:.0f}")
    return _rounded(value, dialect)


def _rounded(value: Any, dialect: Dialect) -> float:
    try:
        return round(float(value), dialect.decimals)
    except OverflowError:
        # JSON integers have any length; this one exceeds all numbers in filters.
        return math.inf if value > 0 else -math.inf
