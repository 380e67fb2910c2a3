"""Fixtures of these tests."""

from support.fixtures.api_cloudwatch import cloudwatch
from support.metric_queries import filled

__all__ = ["cloudwatch", "filled"]
