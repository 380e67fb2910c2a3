"""Limits on each receiver's concurrent deliveries and on each destination's rate."""

from collections import Counter

__all__ = ["ConcurrencyLimits", "RateLimits"]


class ConcurrencyLimits:
    """Limits concurrent deliveries, so that a hanging receiver does not block other receivers, nor
    one address the others of its receiver."""

    def __init__(self, total: int, per_receiver: int) -> None:
        self._total = total
        self.per_receiver = per_receiver
        self._per_address = max(1, per_receiver * 3 // 4)
        self._running: Counter[str] = Counter()
        """by receiver and by address"""
        self._running_total = 0

    def free(self, receiver: str, address: str) -> int:
        """Returns how many deliveries may start now."""
        return min(
            self._total - self._running_total,
            self.per_receiver - self._running[receiver],
            self._per_address - self._running[address],
        )

    @property
    def is_full(self) -> bool:
        return self._running_total >= self._total

    def begin(self, receiver: str, address: str) -> None:
        self._running.update((receiver, address))
        self._running_total += 1

    def end(self, receiver: str, address: str) -> None:
        self._running_total -= 1
        for key in (receiver, address):
            self._running[key] -= 1
            if not self._running[key]:
                del self._running[key]


class RateLimits:
    """A token bucket per address, which holds at most one second's deliveries."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}
        """by address: tokens, and when they were counted"""

    def allowed(self, address: str, per_second: int | None, now: float) -> int | None:
        """Returns None if unlimited."""
        if per_second is None:
            self._buckets.pop(address, None)
            return None
        return int(self._tokens(address, per_second, now))

    def use(self, address: str, per_second: int | None, now: float) -> None:
        if per_second is not None:
            self._buckets[address] = (self._tokens(address, per_second, now) - 1, now)

    def forget_all_but(self, addresses: set[str]) -> None:
        for address in self._buckets.keys() - addresses:
            del self._buckets[address]

    def _tokens(self, address: str, per_second: int, now: float) -> float:
        tokens, counted_at = self._buckets.get(address, (float(per_second), now))
        return min(float(per_second), tokens + (now - counted_at) * per_second)
