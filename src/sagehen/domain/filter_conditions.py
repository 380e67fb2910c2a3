"""The values and operators in a filter policy's lists: each becomes a test of one value."""

import ipaddress
import math
from collections.abc import Callable
from typing import Any, Final

from sagehen.errors import Invalid

__all__ = ["ABSENT", "Condition", "read_condition"]

ABSENT: Final = object()
"""What a condition is asked about where the message has no such key."""

LARGEST_NUMBER = 1e9
_DECIMALS = 5

Condition = Callable[[object], bool]


def read_condition(given: Any) -> Condition:
    """The test that one element of a policy's list stands for.

    Raises:
        Invalid: there is no such condition, or its operand is of the wrong kind.
    """
    if not isinstance(given, dict):
        return _equal(given)
    if len(given) != 1:
        raise Invalid("Only one key allowed in match expression")
    ((operator, operand),) = given.items()
    if operator not in _OPERATORS:
        raise Invalid(f"Unrecognized match type {operator}")
    return _OPERATORS[operator](operand)


def _equal(given: Any) -> Condition:
    if isinstance(given, list):
        raise Invalid("Match value must be String, number, true, false, or null")
    if _is_number(given):
        number = _number(given)
        return lambda value: _is_number(value) and _rounded(value) == number
    # By type too: to Python true is 1.
    return lambda value: type(value) is type(given) and value == given


def _prefix(operand: Any) -> Condition:
    start = _text("prefix", operand)
    return lambda value: isinstance(value, str) and value.startswith(start)


def _suffix(operand: Any) -> Condition:
    end = _text("suffix", operand)
    return lambda value: isinstance(value, str) and value.endswith(end)


def _equals_ignore_case(operand: Any) -> Condition:
    folded = _text("equals-ignore-case", operand).casefold()
    return lambda value: isinstance(value, str) and value.casefold() == folded


def _anything_but(operand: Any) -> Condition:
    if isinstance(operand, dict):
        unwanted = _affixes(operand)
        kinds: tuple[type, ...] = (str,)
    else:
        listed = operand if isinstance(operand, list) else [operand]
        if not listed or not all(isinstance(one, str) or _is_number(one) for one in listed):
            raise Invalid("anything-but takes a string, a number, or a list of either")
        unwanted = [_equal(one) for one in listed]
        kinds = (str, int, float, bool, type(None))
    return lambda value: isinstance(value, kinds) and not any(test(value) for test in unwanted)


def _affixes(operand: dict[str, Any]) -> list[Condition]:
    ((operator, given),) = operand.items() if len(operand) == 1 else (("", None),)
    if operator not in _UNDER_ANYTHING_BUT:
        raise Invalid("anything-but takes only prefix, suffix or equals-ignore-case as an object")
    listed = given if isinstance(given, list) else [given]
    if not listed:
        raise Invalid(f"{operator} under anything-but needs at least one string")
    return [_OPERATORS[operator](one) for one in listed]


def _exists(operand: Any) -> Condition:
    if not isinstance(operand, bool):
        raise Invalid("exists match pattern must be either true or false.")
    return lambda value: (value is not ABSENT) is operand


def _cidr(operand: Any) -> Condition:
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


def _numeric(operand: Any) -> Condition:
    if not isinstance(operand, list) or len(operand) not in (2, 4):
        raise Invalid('numeric takes a list such as ["=", 5] or [">", 0, "<=", 5]')
    bounds = [_bound(operand[i], operand[i + 1]) for i in range(0, len(operand), 2)]
    if len(bounds) == 2:
        (first, low), (second, high) = bounds
        if first not in (">", ">=") or second not in ("<", "<="):
            raise Invalid("A numeric range has > or >= first, then < or <=")
        if low >= high:
            raise Invalid("Bottom must be less than top")
    return lambda value: (
        _is_number(value)
        and all(_COMPARISONS[operator](_rounded(value), number) for operator, number in bounds)
    )


def _bound(operator: Any, number: Any) -> tuple[str, float]:
    if not isinstance(operator, str) or operator not in _COMPARISONS:
        raise Invalid(f"Unrecognized numeric range operator: {operator}")
    if not _is_number(number):
        raise Invalid(f"Value of {operator} must be numeric")
    return operator, _number(number)


_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "=": lambda value, number: value == number,
    "<": lambda value, number: value < number,
    "<=": lambda value, number: value <= number,
    ">": lambda value, number: value > number,
    ">=": lambda value, number: value >= number,
}
_OPERATORS: dict[str, Callable[[Any], Condition]] = {
    "anything-but": _anything_but,
    "cidr": _cidr,
    "equals-ignore-case": _equals_ignore_case,
    "exists": _exists,
    "numeric": _numeric,
    "prefix": _prefix,
    "suffix": _suffix,
}
_UNDER_ANYTHING_BUT = ("prefix", "suffix", "equals-ignore-case")


def _text(operator: str, operand: Any) -> str:
    if not isinstance(operand, str) or not operand:
        raise Invalid(f"{operator} match pattern must be a string that is not empty")
    return operand


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value: float) -> float:
    if abs(value) > LARGEST_NUMBER:
        raise Invalid(
            f"Value of numeric must be between -{LARGEST_NUMBER:.0f} and {LARGEST_NUMBER:.0f}"
        )
    return _rounded(value)


def _rounded(value: Any) -> float:
    """SNS compares numbers to five places."""
    try:
        return round(float(value), _DECIMALS)
    except OverflowError:
        # JSON has integers of any length: these are beyond any that a policy may name.
        return math.inf if value > 0 else -math.inf
