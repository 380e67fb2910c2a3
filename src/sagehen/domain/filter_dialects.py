"""What the two languages of filters differ in: SNS's filter policies, EventBridge's patterns."""

from dataclasses import dataclass

__all__ = ["EVENT_PATTERN", "FILTER_POLICY", "Dialect"]


@dataclass(frozen=True)
class Dialect:
    """One of the languages."""

    largest_number: float
    """That a condition may name, either side of zero."""
    decimals: int
    """Numbers are compared to so many places."""
    wildcards: bool
    """`wildcard`, and `equals-ignore-case` within `prefix` and `suffix`."""
    empty_affixes: bool
    """`prefix` and `suffix` may be of no characters."""


FILTER_POLICY = Dialect(largest_number=1e9, decimals=5, wildcards=False, empty_affixes=False)
"""SNS's developer guide, sns-subscription-filter-policies."""

EVENT_PATTERN = Dialect(largest_number=5e9, decimals=6, wildcards=True, empty_affixes=True)
"""EventBridge's user guide, eb-create-pattern-operators, and its matcher, aws/event-ruler."""
