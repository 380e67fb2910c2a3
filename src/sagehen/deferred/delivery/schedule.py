"""When a delivery that failed is tried again."""

import random
from collections.abc import Sequence

from sagehen.deferred.delivery.verdicts import Parcel
from sagehen.domain.delivery_policy import MAIL_DELAYS, WEBHOOK_DELAYS, RetryPolicy

__all__ = ["next_delay"]

_JITTER = 0.1
"""Part of a delay that is left to chance, so that not all who failed together come again so."""


def next_delay(parcel: Parcel, source: random.Random) -> float | None:
    """Seconds until the next attempt; None: this was the last one."""
    delays = _delays(parcel)
    made = parcel.delivery.attempts
    if made >= len(delays):
        return None
    return delays[made] * source.uniform(1 - _JITTER, 1 + _JITTER)


def _delays(parcel: Parcel) -> Sequence[float]:
    protocol = parcel.subscription.protocol
    if protocol.startswith("email"):
        return MAIL_DELAYS
    retries = parcel.policy.retries
    if retries is None:
        return WEBHOOK_DELAYS if protocol == "webhook" else RetryPolicy().delays()
    return retries.delays()
