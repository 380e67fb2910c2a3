"""Fixtures of these tests."""

from support.fixtures.store import metadata

__all__ = ["metadata"]
