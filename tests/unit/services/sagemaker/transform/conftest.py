"""Fixtures of these tests."""

from support.fixtures.api import refusal, server
from support.fixtures.reconcile import agent, clock, home

__all__ = ["agent", "clock", "home", "refusal", "server"]
