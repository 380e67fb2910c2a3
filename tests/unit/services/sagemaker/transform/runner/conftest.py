"""Fixtures of these tests."""

import pytest

from support.transform_runs import MemoryStore, TransformRun


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def job(store: MemoryStore) -> TransformRun:
    return TransformRun(store)
