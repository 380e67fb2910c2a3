"""Fixtures of these tests."""

from support.fixtures.api_s3 import bucket, make_s3, s3, server
from support.fixtures.reconcile import agent, clock

__all__ = ["agent", "bucket", "clock", "make_s3", "s3", "server"]
