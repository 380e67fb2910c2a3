"""Filters as SNS and EventBridge have them: JSON that becomes a test of an object.

Keys are ANDed, the values in a key's list ORed; `$or` has a list of which one is enough.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sagehen.domain.filter_conditions import ABSENT, Condition, read_condition
from sagehen.domain.filter_dialects import Dialect
from sagehen.errors import Invalid

__all__ = ["Test", "read_rules"]

Test = Callable[[Mapping[str, Any]], bool]


def read_rules(rules: Mapping[str, Any], dialect: Dialect, flat: str | None = None) -> Test:
    """The test that these rules stand for.

    Args:
        flat: what allows no objects within objects.

    Raises:
        Invalid: they are no rules.
        RecursionError: they nest too deeply.
    """
    tests = [_rule(key, rule, dialect, flat) for key, rule in rules.items()]
    return lambda values: all(test(values) for test in tests)


def _rule(key: str, rule: Any, dialect: Dialect, flat: str | None) -> Test:
    if key == "$or" and isinstance(rule, list) and all(isinstance(one, dict) for one in rule):
        if len(rule) < 2:
            raise Invalid('"$or" needs a list of at least two objects')
        choices = [read_rules(_not_empty(key, one), dialect, flat) for one in rule]
        return lambda values: any(choice(values) for choice in choices)
    if isinstance(rule, list):
        if not rule:
            raise Invalid(f"Empty arrays are not allowed: {key}")
        conditions = [read_condition(one, dialect) for one in rule]
        return lambda values: _one_holds(conditions, values.get(key, ABSENT))
    if not isinstance(rule, dict):
        raise Invalid(f'"{key}" must be an object or an array')
    if flat is not None:
        raise Invalid(f'Filter policy scope {flat} does not support nested filter policy: "{key}"')
    nested = read_rules(_not_empty(key, rule), dialect, flat)
    return lambda values: any(nested(one) for one in _objects(values.get(key, ABSENT)))


def _not_empty(key: str, rules: Mapping[str, Any]) -> Mapping[str, Any]:
    if not rules:
        raise Invalid(f"Empty objects are not allowed: {key}")
    return rules


def _one_holds(conditions: list[Condition], value: Any) -> bool:
    # A list, whatever the condition, is as good as its best element.
    candidates = list(_leaves(value)) or [ABSENT]
    return any(condition(one) for condition in conditions for one in candidates)


def _leaves(value: Any) -> Iterator[Any]:
    """What is neither list nor object, in lists of lists too."""
    if isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    elif not isinstance(value, dict):
        yield value


def _objects(value: Any) -> list[Mapping[str, Any]]:
    """What a nested rule looks into: nothing is as good as an empty object (`exists: false`)."""
    found = value if isinstance(value, list) else [value]
    return [one for one in found if isinstance(one, dict)] or [{}]
