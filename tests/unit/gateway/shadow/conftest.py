"""A house whose endpoint has a shadow variant."""

import pytest


@pytest.fixture
async def production(house):
    """A container that answers at once."""
    return await house.fake(lambda asked: (200, {"Content-Type": "text/csv"}, b"ours"))


@pytest.fixture
def shadowed(house, variant, production):
    """`await shadowed(*places, weight=…, slots=…)`: a started house with a shadow there."""

    async def start(*places, settings=None, **shadow):
        house.route(variant(production), shadow=variant(*places, name="Next", **shadow))
        return await house.start(**(settings or {}))

    return start


@pytest.fixture
def counts(house):
    """`counts()`: what is counted of the shadow."""
    return lambda: house.gateway._counters.of("price", "Next")


@pytest.fixture
def is_idle(house, counts):
    """`is_idle()`: no copy is under way any more, and nothing is held for one."""

    def idle():
        shadows = house.gateway._invoker.shadows
        if shadows._all.copies:
            return False
        assert (shadows._all.size, shadows._by_shadow) == (0, {})
        return not house.outstanding()

    return idle
