"""Fixtures of these tests."""

from support.fixtures.scriptrunner import job

__all__ = ["job"]
