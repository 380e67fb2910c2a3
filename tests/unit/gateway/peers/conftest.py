"""Fixtures of these tests."""

from support.fixtures.cluster import authority, nodes

__all__ = ["authority", "nodes"]
