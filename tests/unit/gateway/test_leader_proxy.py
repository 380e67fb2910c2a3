"""Where a gateway of a server that stands by sends invocations."""

from types import SimpleNamespace
from typing import Any

from sagehen.gateway.leader_proxy import Leader
from support.clock import HandClock


def exchange(*names: bytes) -> Any:
    return SimpleNamespace(headers=[(name, b"1") for name in names])


def test_a_leader_is_followed() -> None:
    leader = Leader(HandClock())
    assert leader.pool_for(exchange()) is None
    leader.follow("tcp:127.0.0.1:9000")
    first = leader.pool
    leader.follow("tcp:127.0.0.1:9000")
    assert first is not None
    assert leader.pool is leader.pool_for(exchange(b"host")) is first
    leader.follow("tcp:127.0.0.1:9001")
    assert leader.pool not in (None, first)
    assert first.is_done
    leader.follow(None)
    assert leader.pool is None


def test_what_was_forwarded_is_not_forwarded_again() -> None:
    leader = Leader(HandClock())
    leader.follow("tcp:127.0.0.1:9000")
    assert leader.pool_for(exchange(b"X-Sagehen-Forwarded")) is None
