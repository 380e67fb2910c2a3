"""Fixtures of these tests."""

from support.fixtures.api import refusal, server

__all__ = ["refusal", "server"]
