"""Fixtures of these tests."""

from support.fixtures.wire import as_received, clock

__all__ = ["as_received", "clock"]
