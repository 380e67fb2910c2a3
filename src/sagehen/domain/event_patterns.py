"""Event patterns: which events a rule of EventBridge is for.

The language is that of the user guide (eb-create-pattern, eb-create-pattern-operators); what it
leaves open is as AWS's own matcher has it (aws/event-ruler).
"""

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from sagehen.domain.filter_dialects import EVENT_PATTERN
from sagehen.domain.filter_rules import Test, read_rules
from sagehen.errors import Invalid

__all__ = ["MOST_CHARACTERS", "EventPattern", "read_pattern"]

MOST_CHARACTERS = 4096


class EventPattern:
    """A pattern that was read; made by `read_pattern`."""

    def __init__(self, test: Test) -> None:
        self._test = test

    def matches(self, event: Mapping[str, Any]) -> bool:
        """Whether an event, in its envelope, is one of those that are wanted."""
        try:
            return self._test(event)
        except RecursionError:
            return False  # It nests deeper than any pattern could follow.


@functools.lru_cache(maxsize=2048)
def read_pattern(text: str) -> EventPattern:
    """The pattern that `text`, JSON, stands for.

    Raises:
        Invalid: it is none; says why.
    """
    if len(text) > MOST_CHARACTERS:
        raise Invalid(f"Event pattern is over {MOST_CHARACTERS} characters")
    try:
        given = msgspec.json.decode(text)
        if not isinstance(given, dict):
            raise Invalid("Filter is not an object")
        if not given:
            raise Invalid("Empty objects are not allowed")
        return EventPattern(read_rules(given, EVENT_PATTERN))
    except msgspec.DecodeError as error:
        raise Invalid(f"Unexpected character: {error}") from None
    except RecursionError:
        raise Invalid("Event pattern is nested too deeply") from None
