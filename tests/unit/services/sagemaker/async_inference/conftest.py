"""Fixtures of these tests."""

from support.fixtures.api import refusal, server
from support.fixtures.deferred_dispatch import bench

__all__ = ["bench", "refusal", "server"]
