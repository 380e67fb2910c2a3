"""Fixtures of these tests."""

from support.fixtures.reconcile import database

__all__ = ["database"]
