"""Fixtures of these tests."""

from support.fixtures.api import refusal, server
from support.fixtures.async_queue import counts, enqueue, get, lease
from support.fixtures.deferred_dispatch import bench

__all__ = ["bench", "counts", "enqueue", "get", "lease", "refusal", "server"]
