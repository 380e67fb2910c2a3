"""Fixtures of these tests."""

from support.fixtures.reconcile import agent, clock

__all__ = ["agent", "clock"]
