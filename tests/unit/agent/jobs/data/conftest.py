"""Fixtures of these tests."""

from support.fixtures.agent_jobs import make_spec

__all__ = ["make_spec"]
