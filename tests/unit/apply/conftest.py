"""Fixtures of these tests."""

import pytest

from support.apply_runs import Runner
from support.fixtures.apply import world

__all__ = ["runner", "world"]


@pytest.fixture
def runner(world):
    return Runner(world)
