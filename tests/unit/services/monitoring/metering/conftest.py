"""Fixtures of these tests."""

import pytest

from support.sampling_world import SamplingWorld


@pytest.fixture
def world(database, tmp_path) -> SamplingWorld:
    return SamplingWorld(database, tmp_path)
