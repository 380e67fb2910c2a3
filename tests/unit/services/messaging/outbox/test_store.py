"""Deliveries and their messages in the database. With either database."""

from collections.abc import Sequence

from sagehen.services.messaging.outbox import store as deliveries
from sagehen.services.messaging.outbox.destinations import Delivery, OutboxMessage
from sagehen.state.database import Database

ADDRESSES = [f"arn:aws:test:us-east-1:000000000000:{name}" for name in "ab"]


def add(database: Database, addresses: Sequence[str] = ADDRESSES, published_at: float = 10) -> None:
    message = OutboxMessage(message_id="m", published_at=published_at)
    with database.write() as connection:
        deliveries.add(connection, message, addresses, "k")


def due(database: Database, address: str, now: float = 10) -> list[Delivery]:
    with database.read() as connection:
        return deliveries.due(connection, address, now, limit=10)


def count(database: Database, table: str) -> int:
    with database.read() as connection:
        return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one())


def test_a_message_without_addresses_is_not_kept(any_database: Database) -> None:
    add(any_database, [])
    assert count(any_database, "notices") == 0


def test_a_clock_that_is_set_back_delays_no_delivery_for_longer_than_was_meant(
    any_database: Database,
) -> None:
    add(any_database, published_at=9000)
    (failed,) = due(any_database, ADDRESSES[0], now=9000)
    with any_database.write() as connection:
        deliveries.postpone(connection, failed, now=9000, delay=20)
        assert deliveries.bound_waits(connection, now=100) == 2
        assert deliveries.bound_waits(connection, now=100) == 0
        assert deliveries.due_by_address(connection) == {ADDRESSES[0]: 120, ADDRESSES[1]: 100}


def test_a_message_is_kept_until_its_last_delivery(any_database: Database) -> None:
    add(any_database)
    first, second = (due(any_database, address)[0] for address in ADDRESSES)
    assert (first.kind, first.attempts, first.message.message_id) == ("k", 0, "m")
    with any_database.write() as connection:
        assert deliveries.finish(connection, first)
        assert not deliveries.finish(connection, first)
    assert count(any_database, "notices") == 1
    with any_database.write() as connection:
        deliveries.postpone(connection, second, now=10, delay=20)
    assert due(any_database, ADDRESSES[1], now=29) == []
    (again,) = due(any_database, ADDRESSES[1], now=30)
    assert again.attempts == 1
    with any_database.write() as connection:
        assert deliveries.due_by_address(connection) == {ADDRESSES[1]: 30}
        deliveries.drop(connection, [ADDRESSES[1]])
    assert count(any_database, "notices") == count(any_database, "deliveries") == 0


def test_numbers_are_not_used_twice(any_database: Database) -> None:
    seen = set()
    for _ in range(3):
        add(any_database, ADDRESSES[:1])
        (delivery,) = due(any_database, ADDRESSES[0])
        seen.add((delivery.delivery_id, delivery.notice_id))
        with any_database.write() as connection:
            deliveries.finish(connection, delivery)
    assert len(seen) == 3


def test_the_oldest_are_due_first_and_the_youngest_are_in_excess(any_database: Database) -> None:
    for moment in (3, 1, 2):
        add(any_database, ADDRESSES[:1], published_at=moment)
    oldest, *_ = found = due(any_database, ADDRESSES[0])
    assert [delivery.due_at for delivery in found] == [1, 2, 3]
    with any_database.read() as connection:
        without = deliveries.due(connection, ADDRESSES[0], 10, 10, [oldest.delivery_id])
        excess = deliveries.excess(connection, ADDRESSES[0], 2, 10)
    assert [delivery.due_at for delivery in without] == [2, 3]
    assert [delivery.due_at for delivery in excess] == [3]
