"""Fixtures of these tests."""

from support.fixtures.gateway import (
    comes_to_rest_fixture,
    echo,
    eventually_fixture,
    house,
    limits_met,
    no_agent,
    pytest_asyncio_loop_factories,
    served,
    variant,
)
from support.fixtures.gateway_shadow import counts, is_idle, production, shadowed

__all__ = [
    "comes_to_rest_fixture",
    "counts",
    "echo",
    "eventually_fixture",
    "house",
    "is_idle",
    "limits_met",
    "no_agent",
    "production",
    "pytest_asyncio_loop_factories",
    "served",
    "shadowed",
    "variant",
]
