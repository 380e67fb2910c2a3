"""Where two values differ: what is kept and what is wanted, what is wanted and what is there."""

from collections.abc import Iterator
from typing import Any

import msgspec

__all__ = ["Difference", "differences", "missing_from"]


class Difference(msgspec.Struct, frozen=True):
    path: str
    """`PrimaryContainer.Image`, `ProductionVariants[0].InstanceType`."""
    before: Any
    """None where there was nothing."""
    after: Any

    @property
    def member(self) -> str:
        """The property that it is in."""
        return self.path.partition(".")[0].partition("[")[0]


def differences(before: Any, after: Any, path: str = "") -> Iterator[Difference]:
    """All of them, as deep down as both have the same form."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            below = f"{path}.{name}" if path else str(name)
            yield from differences(before.get(name), after.get(name), below)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif before != after:
        yield Difference(path, before, after)


def missing_from(there: Any, wanted: Any, path: str = "") -> Iterator[Difference]:
    """What of `wanted` is not so `there`, which may have more, such as defaults."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        for name, value in wanted.items():
            below = f"{path}.{name}" if path else str(name)
            yield from missing_from(there.get(name), value, below)
    elif isinstance(wanted, list) and isinstance(there, list) and len(wanted) == len(there):
        for number, (one, other) in enumerate(zip(there, wanted, strict=True)):
            yield from missing_from(one, other, f"{path}[{number}]")
    elif there != wanted and not (there is None and wanted in ({}, [])):
        yield Difference(path, there, wanted)
