"""Fixtures of these tests."""

from support.fixtures.agent import make_spec

__all__ = ["make_spec"]
