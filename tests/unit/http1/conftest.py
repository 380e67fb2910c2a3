"""Fixtures of these tests: a gateway, which uses both the server and the client."""

from support.fixtures.gateway import (
    echo,
    eventually_fixture,
    house,
    no_agent,
    pytest_asyncio_loop_factories,
    variant,
)

__all__ = [
    "echo",
    "eventually_fixture",
    "house",
    "no_agent",
    "pytest_asyncio_loop_factories",
    "variant",
]
