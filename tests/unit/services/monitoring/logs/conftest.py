"""Fixtures of these tests."""

from support.fixtures.api import server

__all__ = ["server"]
