"""Counts and sums of what multi-model containers were asked to do; they only grow."""

from dataclasses import dataclass, field

__all__ = ["ModelTallies", "Tally"]


@dataclass
class Tally:
    """How often something was done, and how long it took in all."""

    count: int = 0
    microseconds: int = 0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.microseconds += round(seconds * 1e6)


@dataclass
class ModelTallies:
    """SageMaker's multi-model times, of one instance."""

    loading: Tally = field(default_factory=Tally)
    downloading: Tally = field(default_factory=Tally)
    unloading: Tally = field(default_factory=Tally)
    waiting: Tally = field(default_factory=Tally)

    def values(self) -> dict[str, float]:
        """By the name of the metric, ending in Sum (microseconds) or Count."""
        tallies = {
            "ModelLoadingTime": self.loading,
            "ModelDownloadingTime": self.downloading,
            "ModelUnloadingTime": self.unloading,
            "ModelLoadingWaitTime": self.waiting,
        }
        values: dict[str, float] = {}
        for name, tally in tallies.items():
            values[name + "Sum"] = tally.microseconds
            values[name + "Count"] = tally.count
        return values
