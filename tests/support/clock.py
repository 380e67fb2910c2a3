"""A clock for tests."""

from dataclasses import dataclass


@dataclass
class HandClock:
    """Stands still until it is moved, or somebody sleeps by it."""

    seconds: float = 0.0

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
