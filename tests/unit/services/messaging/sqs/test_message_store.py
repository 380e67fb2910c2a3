"""Messages of queues: who gets them, for how long, and when they go. With either database."""

import itertools
import threading
import uuid

from sagehen.services.messaging.message_attributes import MessageAttribute
from sagehen.services.messaging.sqs import message_store as messages
from sagehen.services.messaging.sqs import queue_store as queues
from sagehen.services.messaging.sqs.records import (
    MessageContent,
    NewMessage,
    QueueMessage,
    QueueRecord,
)
from sagehen.state.database import Database


def make_queue(database: Database, name: str = "q", **attributes: str) -> QueueRecord:
    record = QueueRecord(
        name=name, queue_id=uuid.uuid4().hex, created_at=0, modified_at=0, attributes=attributes
    )
    with database.write() as connection:
        assert queues.insert(connection, record)
    return record


def send(database: Database, queue: QueueRecord, *bodies: str, now: float = 0) -> None:
    new = [NewMessage(message_id=str(uuid.uuid4()), body=body) for body in bodies]
    with database.write() as connection:
        messages.send(connection, queue, new, now)


def receive(
    database: Database, queue: QueueRecord, now: float, limit: int = 10, seconds: float = 30
) -> list[QueueMessage]:
    with database.write() as connection:
        return messages.receive(connection, queue, limit, seconds, now)


def test_hidden_while_received(any_database: Database) -> None:
    queue = make_queue(any_database)
    send(any_database, queue, "a", "b")
    (first,) = receive(any_database, queue, now=1, limit=1)
    assert (first.body, first.receives, first.first_received_at) == ("a", 1, 1)
    assert [one.body for one in receive(any_database, queue, now=2)] == ["b"]
    assert receive(any_database, queue, now=30) == []
    (again,) = receive(any_database, queue, now=31.5)
    assert (again.body, again.receives, again.first_received_at) == ("a", 2, 1)
    with any_database.write() as connection:
        assert not messages.remove(connection, queue, first.sequence, first.receipt)
        assert messages.remove(connection, queue, again.sequence, again.receipt)
        assert messages.next_visible(connection, queue, 31.5) == 32


def test_visibility_is_changed_of_any_message_that_is_left(any_database: Database) -> None:
    queue = make_queue(any_database)
    send(any_database, queue, "a")
    (held,) = receive(any_database, queue, now=0)
    told: list[str] = []
    any_database.listen(messages.MESSAGES_SENT, told.append)
    with any_database.write() as connection:
        change = messages.change_visibility
        assert change(connection, queue, held.sequence, visible_at=100, now=1)
    assert receive(any_database, queue, now=99) == []
    assert told == []
    with any_database.write() as connection:
        assert change(connection, queue, held.sequence, visible_at=50, now=50)
    assert told == ["q"]
    with any_database.write() as connection:
        assert change(connection, queue, held.sequence, visible_at=90, now=60)
    assert receive(any_database, queue, now=89) == []
    (again,) = receive(any_database, queue, now=90)
    with any_database.write() as connection:
        expired = 90 + queue.retention_seconds
        assert not change(connection, queue, again.sequence, visible_at=expired, now=expired)
        assert messages.remove(connection, queue, again.sequence, again.receipt)
        assert not change(connection, queue, again.sequence, visible_at=100, now=91)


def test_counts_and_delays(any_database: Database) -> None:
    queue = make_queue(any_database, DelaySeconds="10")
    send(any_database, queue, "a", "b")
    with any_database.read() as connection:
        assert messages.counts(connection, queue, now=5) == (0, 0, 2)
        assert messages.next_visible(connection, queue, now=5) == 10
        assert messages.counts(connection, queue, now=10) == (2, 0, 0)
    receive(any_database, queue, now=10, limit=1)
    with any_database.read() as connection:
        assert messages.counts(connection, queue, now=11) == (1, 1, 0)


def test_what_is_kept_long_enough_is_gone(any_database: Database) -> None:
    queue = make_queue(any_database, MessageRetentionPeriod="60")
    send(any_database, queue, "old")
    send(any_database, queue, "new", now=30)
    with any_database.write() as connection:
        # Also where no sweep has been yet.
        assert messages.next_visible(connection, queue, now=60) == 30
        assert messages.sweep(connection, [queue], now=60, limit=10) == 1
    assert [one.body for one in receive(any_database, queue, now=60)] == ["new"]


def test_an_emptied_queue_is_empty_at_once_and_freed_later(any_database: Database) -> None:
    queue = make_queue(any_database)
    send(any_database, queue, *map(str, range(5)))
    with any_database.write() as connection:
        queues.purge(connection, queue, now=0)
        fresh = queues.get(connection, queue.name)
    assert fresh is not None
    assert receive(any_database, fresh, now=1) == []
    # From a sender that knew the queue as it was.
    send(any_database, queue, "late")
    with any_database.write() as connection:
        counts = [messages.sweep(connection, [fresh], now=1, limit=4) for _ in range(3)]
        assert counts == [4, 2, 0]
        messages.sweep(connection, [fresh], now=4000, limit=4)
        rows = connection.exec_driver_sql("SELECT count(*) FROM emptied_queues").scalar_one()
        assert rows == 0


def test_a_clock_that_is_set_back_hides_no_message_for_longer_than_was_asked(
    any_database: Database,
) -> None:
    queue = make_queue(any_database)
    late = 5 * 3600.0
    send(any_database, queue, "received", "changed", now=late)
    (_, second) = receive(any_database, queue, now=late, seconds=20)
    with any_database.write() as connection:
        change = messages.change_visibility
        assert change(connection, queue, second.sequence, late + 50, now=late)
        delayed = [NewMessage(message_id="d", body="delayed", delay_seconds=90)]
        messages.send(connection, queue, delayed, now=late)
    send(any_database, queue, "just sent", now=late)
    assert receive(any_database, queue, now=100) == []
    told: list[str] = []
    any_database.listen(messages.MESSAGES_SENT, told.append)
    with any_database.write() as connection:
        assert messages.bound_waits(connection, [queue], now=100) == 4
        assert messages.bound_waits(connection, [queue], now=100) == 0
        assert messages.next_visible(connection, queue, 100) == 100
    assert told == ["q"]
    seen = {
        now: [one.body for one in receive(any_database, queue, now=now, seconds=1000)]
        for now in (100, 119, 120, 149, 150, 189, 190)
    }
    assert seen == {
        100: ["just sent"],
        119: [],
        120: ["received"],
        149: [],
        150: ["changed"],
        189: [],
        190: ["delayed"],
    }


def test_a_message_of_an_earlier_version_waits_as_it_did(any_database: Database) -> None:
    queue = make_queue(any_database)
    send(any_database, queue, "a", now=1000)
    with any_database.write() as connection:
        connection.exec_driver_sql("UPDATE queue_messages SET hidden_seconds = NULL")
        assert messages.bound_waits(connection, [queue], now=1) == 0


def test_dead_letters_keep_what_they_were(any_database: Database) -> None:
    queue, dead = make_queue(any_database), make_queue(any_database, "dead")
    content = MessageContent(attributes={"a": MessageAttribute("String", "x")})
    with any_database.write() as connection:
        new = NewMessage(message_id="id", body="b", content=content)
        messages.send(connection, queue, [new], now=0)
    for now in (0, 1):
        assert len(receive(any_database, queue, now, seconds=0)) == 1
    told: list[str] = []
    any_database.listen(messages.MESSAGES_SENT, told.append)
    with any_database.write() as connection:
        move = messages.take_exhausted
        assert move(connection, queue, 3, dead, "source", now=2, limit=10) == 0
        assert move(connection, queue, 2, dead, "source", now=2, limit=10) == 1
    assert told == ["dead"]
    assert receive(any_database, queue, now=3) == []
    (letter,) = receive(any_database, dead, now=3)
    assert (letter.message_id, letter.body, letter.sent_at, letter.receives) == ("id", "b", 0, 1)
    assert letter.content.attributes == content.attributes
    assert letter.content.source_arn == "source"


def test_dead_letters_behind_others_are_passed_over(any_database: Database) -> None:
    queue, dead = make_queue(any_database), make_queue(any_database, "dead")
    send(any_database, queue, *map(str, range(6)))
    receive(any_database, queue, now=0, seconds=0)
    send(any_database, queue, "new", now=1)
    with any_database.write() as connection:
        assert messages.take_exhausted(connection, queue, 1, dead, "source", now=1, limit=4) == 4
        (found,) = messages.receive(connection, queue, 10, 30, now=1, most_receives=1)
        assert found.body == "new"
        assert messages.take_exhausted(connection, queue, 1, dead, "source", now=1, limit=4) == 2


def test_a_receiver_reads_as_much_however_many_wait(database: Database) -> None:
    queue, dead = make_queue(database), make_queue(database, "dead")
    few, many = 200, 5000

    def steps() -> list[int]:
        """Of SQLite's machine, in hundreds, for each thing that a receiver does."""
        taken = []
        for act in (
            lambda connection: messages.take_exhausted(connection, queue, 3, dead, "x", 9, 100),
            lambda connection: messages.receive(connection, queue, 10, 30, 9, most_receives=3),
            lambda connection: messages.next_visible(connection, queue, 9),
        ):
            count = itertools.count()
            with database.write() as connection:
                driver = connection.connection.driver_connection
                driver.set_progress_handler(lambda count=count: next(count) * 0, 100)
                act(connection)
                driver.set_progress_handler(None, 0)
            taken.append(next(count))
        return taken

    send(database, queue, *map(str, range(few)))
    before = steps()
    send(database, queue, *map(str, range(many - few)))
    for one, other in zip(before, steps(), strict=True):
        assert other <= 1.5 * one + 2


def test_nobody_gets_what_another_got(any_database: Database) -> None:
    queue = make_queue(any_database)
    send(any_database, queue, *map(str, range(40)))
    got: list[str] = []

    def work() -> None:
        while found := receive(any_database, queue, now=1, limit=3):
            got.extend(one.body for one in found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got, key=int) == [str(n) for n in range(40)]


def test_names_keep_their_case(any_database: Database) -> None:
    for name in ("Qa", "qb", "q%c", "q_d"):
        make_queue(any_database, name)
    with any_database.read() as connection:
        assert set(queues.list_names(connection, "q", "", 10)) == {"qb", "q%c", "q_d"}
        assert queues.list_names(connection, "q_", "", 10) == ["q_d"]
        assert queues.get(connection, "QA") is None
        assert queues.count(connection) == len(queues.all(connection)) == 4
