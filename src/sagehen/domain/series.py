"""What CloudWatch keeps values under."""

import hashlib
from typing import NamedTuple

import msgspec

__all__ = ["Dimensions", "Series", "as_dimensions"]

Dimensions = tuple[tuple[str, str], ...]
"""Names and values, in the order of the names."""


class Series(NamedTuple):
    """Values that belong together. Those that differ only in the unit are of one metric."""

    namespace: str
    name: str
    dimensions: Dimensions
    unit: str = "None"
    """CloudWatch's word for it."""

    @property
    def digest(self) -> str:
        return _digest(*self)

    @property
    def metric(self) -> str:
        """A digest too, of all but the unit."""
        return _digest(*self[:3])


def as_dimensions(given: dict[str, str]) -> Dimensions:
    return tuple(sorted(given.items()))


def _digest(*parts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
