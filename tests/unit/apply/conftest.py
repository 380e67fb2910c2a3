"""Resources without a server."""

import pytest

from sagehen.apply import hidden
from sagehen.apply.kinds import KINDS
from support.apply_world import World, of_world


@pytest.fixture
def world(monkeypatch) -> World:
    """Every type of resource, of one world in memory."""
    for name, kind in list(KINDS.items()):
        monkeypatch.setitem(KINDS, name, of_world(kind))
    # The hash is made slow for whoever guesses; runs make hundreds of it.
    monkeypatch.setattr(hidden, "_COST", 2)
    hidden._hash.cache_clear()
    return World()
