"""Limits on each receiver's concurrent deliveries and rate."""

from collections import Counter
from urllib.parse import urlsplit

from sagehen.services.messaging.sns.records import SubscriptionRecord

__all__ = ["Receivers", "Throttle", "receiver_of"]


def receiver_of(subscription: SubscriptionRecord) -> str:
    """Returns what one hanging delivery may block: a host and port, or the mail server."""
    if subscription.protocol.startswith("email"):
        return "mail"
    parts = urlsplit(subscription.endpoint)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or ''}"


class Receivers:
    """Limits concurrent deliveries, so that a hanging receiver does not block other receivers, nor
    one subscription the others of its receiver."""

    def __init__(self, most: int, most_each: int) -> None:
        self._most = most
        self.most_each = most_each
        self._most_of_one = max(1, most_each * 3 // 4)
        self._on_the_way: Counter[str] = Counter()
        """by receiver and by subscription"""
        self._total = 0

    def room(self, receiver: str, subscription_arn: str) -> int:
        return min(
            self._most - self._total,
            self.most_each - self._on_the_way[receiver],
            self._most_of_one - self._on_the_way[subscription_arn],
        )

    @property
    def is_full(self) -> bool:
        return self._total >= self._most

    def begin(self, receiver: str, subscription_arn: str) -> None:
        self._on_the_way.update((receiver, subscription_arn))
        self._total += 1

    def end(self, receiver: str, subscription_arn: str) -> None:
        self._total -= 1
        for one in (receiver, subscription_arn):
            self._on_the_way[one] -= 1
            if not self._on_the_way[one]:
                del self._on_the_way[one]


class Throttle:
    """Enforces maxReceivesPerSecond; at most one second's unused capacity is saved."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[float, float]] = {}

    def allows(self, subscription_arn: str, per_second: int | None, now: float) -> int | None:
        """Returns None if unlimited."""
        if per_second is None:
            self._used.pop(subscription_arn, None)
            return None
        return int(self._saved(subscription_arn, per_second, now))

    def use(self, subscription_arn: str, per_second: int | None, now: float) -> None:
        if per_second is not None:
            left = self._saved(subscription_arn, per_second, now) - 1
            self._used[subscription_arn] = (left, now)

    def forget(self, but: set[str]) -> None:
        for arn in self._used.keys() - but:
            del self._used[arn]

    def _saved(self, arn: str, per_second: int, now: float) -> float:
        left, since = self._used.get(arn, (float(per_second), now))
        return min(float(per_second), left + (now - since) * per_second)
