"""The books of a multi-model cache: which models are loaded, what they cost, who needs them."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sagehen.agent.artifacts import Artifact
from sagehen.clock import Clock

__all__ = ["LENT_SECONDS", "Loaded", "ModelBooks"]

LENT_SECONDS = 5.0
"""Gateways tell once a second what they use: what was lent and not used for so long is needed by
nobody any more, as its gateway has ended without giving it back."""


@dataclass(eq=False)
class Loaded:
    """A model that the container holds."""

    name: str
    artifact: Artifact
    cost_bytes: int
    lent: int
    """To so many callers that have not given it back."""
    used_at: float = 0.0


class ModelBooks:
    """Loaded models, the least recently used first, and the room that they take."""

    def __init__(self, room_bytes: int, clock: Clock) -> None:
        self.room_bytes = room_bytes
        self.booked_bytes = 0
        self.reserved_bytes = 0
        """By models that are being loaded."""
        self._clock = clock
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()

    def __len__(self) -> int:
        return len(self._loaded)

    def find(self, name: str) -> Loaded | None:
        return self._loaded.get(name)

    def fits(self, need_bytes: int) -> bool:
        return self.booked_bytes + self.reserved_bytes + need_bytes <= self.room_bytes

    def add(self, model: Loaded) -> None:
        self._loaded[model.name] = model
        self.booked_bytes += model.cost_bytes
        self.touch([model.name])

    def remove(self, name: str) -> Loaded:
        model = self._loaded.pop(name)
        self.booked_bytes -= model.cost_bytes
        return model

    def clear(self) -> list[Loaded]:
        """Everything that was loaded."""
        return [self.remove(name) for name in list(self._loaded)]

    def touch(self, names: Iterable[str]) -> None:
        """Models were used just now; what is not loaded is no one's concern."""
        now = self._clock.monotonic()
        for name in names:
            model = self._loaded.get(name)
            if model is not None:
                model.used_at = now
                self._loaded.move_to_end(name)

    def lend(self, model: Loaded) -> None:
        """It stays loaded until it is given back, or is not used for LENT_SECONDS."""
        model.lent += 1
        self.touch([model.name])

    def give_back(self, counts: Mapping[str, int]) -> list[Loaded]:
        """Those of the models that nobody has borrowed any more."""
        free = []
        for name, count in counts.items():
            model = self._loaded.get(name)
            if model is not None and model.lent:
                model.lent = max(0, model.lent - count)
                if not model.lent:
                    free.append(model)
        return free

    def idle(self, besides: str = "") -> Iterator[Loaded]:
        """Models that may be unloaded, the least recently used first."""
        now = self._clock.monotonic()
        for model in self._loaded.values():
            if model.name != besides and (not model.lent or now - model.used_at > LENT_SECONDS):
                yield model
