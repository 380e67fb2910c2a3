"""Fixtures of these tests."""

from support.fixtures.api_inference_service import house, make_house, state
from support.fixtures.gateway import no_agent

__all__ = ["house", "make_house", "no_agent", "state"]
