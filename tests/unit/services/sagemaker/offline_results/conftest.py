"""Fixtures of these tests."""

from support.fixtures.api import refusal, server
from support.fixtures.objects import local, root
from support.fixtures.reconcile import agent, clock, database, home

__all__ = ["agent", "clock", "database", "home", "local", "refusal", "root", "server"]
