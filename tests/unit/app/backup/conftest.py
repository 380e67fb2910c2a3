"""Fixtures of these tests."""

from support.backups import home, target

__all__ = ["home", "target"]
