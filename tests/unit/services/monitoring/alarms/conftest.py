"""Fixtures of these tests."""

import pytest

from support.fixtures.api_alarms import Alarms


@pytest.fixture
def alarms(database, tmp_path):
    return Alarms(database, tmp_path)
