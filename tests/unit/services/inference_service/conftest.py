"""Fixtures of these tests."""

from support.fixtures.api_inference_service import house, make_house, state

__all__ = ["house", "make_house", "state"]
