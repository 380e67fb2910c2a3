"""Fixtures of these tests."""

from support.fixtures.api_cloudwatch import cloudwatch

__all__ = ["cloudwatch"]
