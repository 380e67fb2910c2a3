"""Fixtures of these tests."""

from support.fixtures.api import refusal, server
from support.fixtures.api_training import request_of
from support.fixtures.reconcile import agent, clock, home
from support.fixtures.reconcile_jobs import passes

__all__ = ["agent", "clock", "home", "passes", "refusal", "request_of", "server"]
