"""Models that were lent by an agent, and are given back when no request needs them any more."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

__all__ = ["Lent", "Returns"]


class Lent(NamedTuple):
    """What is owed to the agent of an instance."""

    model_name: str
    times: int
    keep: bool


class Returns:
    """Tells an agent at once, and what comes while it is being told all together next.

    Args:
        tell: tells the agent of an instance how many of each model are given back.
    """

    def __init__(self, tell: Callable[[str, dict[str, int]], Awaitable[None]]) -> None:
        self._tell = tell
        self._counts: dict[str, dict[str, int]] = {}
        self._telling: set[str] = set()

    def add(self, instance_id: str, model_name: str, times: int) -> bool:
        """Note what is given back; whether `tell` has to be called for that."""
        counts = self._counts.setdefault(instance_id, {})
        counts[model_name] = counts.get(model_name, 0) + times
        if instance_id in self._telling:
            return False
        self._telling.add(instance_id)
        return True

    async def tell(self, instance_id: str) -> None:
        try:
            while counts := self._counts.pop(instance_id, None):
                await self._tell(instance_id, counts)
        finally:
            self._telling.discard(instance_id)
