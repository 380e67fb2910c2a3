"""When an instance that failed under an endpoint in service is asked for again."""

import msgspec

__all__ = ["LONGEST_BACKOFF_SECONDS", "Retry", "backoff_seconds"]

FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 60.0


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often an instance was asked for since it failed, and when the next time is.

    Kept in memory only: a control that starts anew begins with the shortest wait again.
    """

    attempts: int
    at: float
    """Seconds since the epoch."""


def backoff_seconds(
    attempts: int, first: float = FIRST_BACKOFF_SECONDS, longest: float = LONGEST_BACKOFF_SECONDS
) -> float:
    """How long to wait after that many attempts: doubles, to a bound."""
    doublings = min(attempts, 32)  # past any bound that makes sense, and before floats overflow
    return min(longest, first * 2.0**doublings)
