"""When a delivery that failed is tried again."""

import math
import random
from collections.abc import Sequence

from sagehen.deferred.delivery.verdicts import Parcel
from sagehen.domain.delivery_policy import MAIL_DELAYS, WEBHOOK_DELAYS, RetryPolicy
from sagehen.domain.event_deliveries import EVENT_DELAYS, PROTOCOL

__all__ = ["next_delay"]

_JITTER = 0.1
"""Part of a delay that is left to chance, so that not all who failed together come again so."""


def next_delay(parcel: Parcel, source: random.Random, now: float) -> float | None:
    """Seconds until the next attempt; None: this was the last one."""
    delays = _delays(parcel)
    made = parcel.delivery.attempts
    if made >= len(delays):
        return None
    delay = delays[made] * source.uniform(1 - _JITTER, 1 + _JITTER)
    return None if now + delay > _ends_at(parcel) else delay


def _delays(parcel: Parcel) -> Sequence[float]:
    protocol = parcel.subscription.protocol
    if protocol.startswith("email"):
        return MAIL_DELAYS
    if protocol == PROTOCOL:
        return EVENT_DELAYS[: int(parcel.subscription.attributes["MaximumRetryAttempts"])]
    retries = parcel.policy.retries
    if retries is None:
        return WEBHOOK_DELAYS if protocol == "webhook" else RetryPolicy().delays()
    return retries.delays()


def _ends_at(parcel: Parcel) -> float:
    """After which no attempt is made: events grow too old."""
    age = parcel.subscription.attributes.get("MaximumEventAgeInSeconds")
    if parcel.subscription.protocol != PROTOCOL or age is None:
        return math.inf
    return parcel.delivery.notice.published_at + float(age)
