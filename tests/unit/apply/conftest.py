"""Fixtures of these tests."""

from support.fixtures.apply import world

__all__ = ["world"]
