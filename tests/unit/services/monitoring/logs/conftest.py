"""Fixtures of these tests."""

from support.fixtures.api import server
from support.stored_logs import logs, make_logs

__all__ = ["logs", "make_logs", "server"]
