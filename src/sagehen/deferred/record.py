"""How what happens is counted."""

from collections.abc import Callable, Mapping

__all__ = ["Record"]

Record = Callable[[str, Mapping[str, str], float], None]
"""Takes a metric's name, its dimensions by our names of them, and a value in its unit."""
