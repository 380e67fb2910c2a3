"""SNS filter policies and EventBridge event patterns.

Sources: SNS's developer guide (sns-subscription-filter-policies,
subscription-filter-policy-constraints), EventBridge's user guide (eb-create-pattern,
eb-create-pattern-operators), and AWS's matcher (aws/event-ruler).
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from sagehen.base.errors import Invalid
from sagehen.services.messaging.filters.conditions import EVENT_PATTERN, FILTER_POLICY, Dialect
from sagehen.services.messaging.filters.rules import Test, read_rules
from sagehen.services.messaging.message_attributes import MessageAttribute

__all__ = [
    "ATTRIBUTES",
    "BODY",
    "MAX_CHARACTERS",
    "EventPattern",
    "FilterPolicy",
    "read_pattern",
    "read_policy",
]

ATTRIBUTES = "MessageAttributes"
BODY = "MessageBody"

MAX_BYTES = 256 * 1024
MAX_KEYS = 5
MAX_COMBINATIONS = 150


class FilterPolicy:
    """A parsed filter policy."""

    def __init__(self, test: Test, scope: str) -> None:
        self._test = test
        self._scope = scope

    def accepts(self, message: str, attributes: Mapping[str, MessageAttribute]) -> bool:
        """Rejects messages nested too deeply; a policy on the body, what is no JSON object."""
        try:
            if self._scope == ATTRIBUTES:
                return self._test(_values_of(attributes))
            body = msgspec.json.decode(message)
            return isinstance(body, dict) and self._test(body)
        except (msgspec.DecodeError, RecursionError):
            return False


@functools.lru_cache(maxsize=1024)
def read_policy(text: str, scope: str = ATTRIBUTES) -> FilterPolicy:
    """Raises Invalid, also for nesting that the scope forbids."""
    if len(text.encode()) > MAX_BYTES:
        raise Invalid(f"Filter policy is over {MAX_BYTES} bytes")
    try:
        definition = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"failed to parse JSON. {error}") from None
    if not isinstance(definition, dict):
        raise Invalid("Filter policy must be a JSON object")
    try:
        flat = scope if scope == ATTRIBUTES else None
        test = read_rules(definition, FILTER_POLICY, flat)
        _check_complexity(list(_leaves(definition, 1, dots_nest=flat is None)))
    except RecursionError:
        raise Invalid("Filter policy is nested too deeply") from None
    return FilterPolicy(test, scope)


def _values_of(attributes: Mapping[str, MessageAttribute]) -> dict[str, Any]:
    """Omits binary attributes, which filters cannot test."""
    values: dict[str, Any] = {}
    for name, attribute in attributes.items():
        kind, text = attribute.data_type.split(".")[0], attribute.string_value
        if text is None:
            continue
        if attribute.data_type == "String.Array":
            values[name] = _decoded(text)
        else:
            values[name] = _decoded(text) if kind == "Number" else text
    return values


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _leaves(rules: Mapping[str, Any], above: int, dots_nest: bool) -> Iterator[tuple[int, int]]:
    """Yields each key's number of values and depth."""
    for key, rule in rules.items():
        depth = above + key.count(".") * dots_nest
        if isinstance(rule, dict):
            yield from _leaves(rule, depth + 1, dots_nest)
        elif key == "$or" and all(isinstance(item, dict) for item in rule):
            for item in rule:
                yield from _leaves(item, depth, dots_nest)
        else:
            yield len(rule), depth


def _check_complexity(leaves: list[tuple[int, int]]) -> None:
    if len(leaves) > MAX_KEYS:
        raise Invalid(f"Filter policy can not have more than {MAX_KEYS} keys")
    combinations = 1
    for values, depth in leaves:
        combinations *= values * depth
    if combinations > MAX_COMBINATIONS:
        raise Invalid("Filter policy is too complex")


MAX_CHARACTERS = 4096


class EventPattern:
    """A parsed event pattern."""

    def __init__(self, test: Test) -> None:
        self._test = test

    def matches(self, event: Mapping[str, Any]) -> bool:
        """Takes an event in its envelope."""
        try:
            return self._test(event)
        except RecursionError:
            return False  # nested deeper than any pattern


@functools.lru_cache(maxsize=2048)
def read_pattern(text: str, dialect: Dialect = EVENT_PATTERN) -> EventPattern:
    """Raises Invalid."""
    if len(text) > MAX_CHARACTERS:
        raise Invalid(f"Event pattern is over {MAX_CHARACTERS} characters")
    try:
        definition = msgspec.json.decode(text)
        if not isinstance(definition, dict):
            raise Invalid("Filter is not an object")
        if not definition:
            raise Invalid("Empty objects are not allowed")
        return EventPattern(read_rules(definition, dialect))
    except msgspec.DecodeError as error:
        raise Invalid(f"Unexpected character: {error}") from None
    except RecursionError:
        raise Invalid("Event pattern is nested too deeply") from None
