"""Leases: one holder at a time, and none for ever."""

from sagehen.state import leases
from sagehen.state.database import Database


def test_one_holder_until_it_runs_out(database: Database) -> None:
    with database.write() as connection:
        assert leases.acquire(connection, "loop", "a", now=0, ttl_seconds=10)
        assert not leases.acquire(connection, "loop", "b", now=9.9, ttl_seconds=10)
        assert leases.acquire(connection, "other", "b", now=0, ttl_seconds=10)
        assert leases.acquire(connection, "loop", "a", now=5, ttl_seconds=10)
        assert not leases.acquire(connection, "loop", "b", now=14, ttl_seconds=10)
        assert leases.acquire(connection, "loop", "b", now=15, ttl_seconds=10)


def test_renewing_needs_to_hold_it(database: Database) -> None:
    with database.write() as connection:
        assert not leases.renew(connection, "loop", "a", now=0, ttl_seconds=10)
        leases.acquire(connection, "loop", "a", now=0, ttl_seconds=10)
        # Late, but nobody came in between.
        assert leases.renew(connection, "loop", "a", now=20, ttl_seconds=10)
        assert not leases.acquire(connection, "loop", "b", now=29, ttl_seconds=10)
        assert leases.acquire(connection, "loop", "b", now=30, ttl_seconds=10)
        assert not leases.renew(connection, "loop", "a", now=31, ttl_seconds=10)


def test_released_is_free_at_once(database: Database) -> None:
    with database.write() as connection:
        leases.acquire(connection, "loop", "a", now=0, ttl_seconds=10)
        assert not leases.release(connection, "loop", "b")
        assert leases.release(connection, "loop", "a")
        assert leases.acquire(connection, "loop", "b", now=1, ttl_seconds=10)
