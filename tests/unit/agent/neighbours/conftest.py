"""Fixtures of these tests."""

from support.fixtures.neighbours import cache_nodes

__all__ = ["cache_nodes"]
