"""Keeps what turned out wrong while the demo runs, and says so at once."""

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape

__all__ = ["Checks"]


class Checks:
    """Counts what was looked at, and the faults among it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.made = 0
        self.faults: list[str] = []

    @property
    def sound(self) -> bool:
        return not self.faults

    def expect(self, right: bool, fault: str) -> None:
        """Note that something was looked at; print `fault` if it is not right."""
        self.made += 1
        if not right:
            self.faults.append(fault)
            self._console.print(f"  [red]wrong:[/red] {escape(fault)}")

    def same(self, target: str, got: NDArray[np.float32], wanted: NDArray[np.float32]) -> None:
        """The endpoint's answer is, float for float, what the model says here."""
        self.expect(
            np.array_equal(got, wanted),
            f"{target} answered {got.tolist()}, but the model itself says {wanted.tolist()}.",
        )
