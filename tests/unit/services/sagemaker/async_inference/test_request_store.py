"""The queue of asynchronous requests, in SQLite and in PostgreSQL."""

import pytest
from sqlalchemy import event, text

from sagehen.services.sagemaker.async_inference import lease_store as leases
from sagehen.services.sagemaker.async_inference import request_store as queue
from sagehen.services.sagemaker.async_inference.records import (
    AsyncState,
    EndpointQueue,
    OutputTarget,
    QueuedRequest,
    QueueMode,
)
from sagehen.state.database import Database
from support.fixtures.async_queue import FAILURE, SUCCESS, Enqueue, Lease, request

FULL = request(
    1,
    inference_id="a b/../ü",
    content_type="text/csv",
    accept="application/json",
    custom_attributes="c=1",
    output=OutputTarget(
        location="s3://out/x.out",
        failure_location="s3://out/x-error.out",
        success_topic="arn:s",
        error_topic="arn:e",
        include_response_in=("SUCCESS_NOTIFICATION_TOPIC",),
    ),
)


@pytest.mark.parametrize("one", [FULL, request(2)])
def test_a_request_comes_back_as_it_was(enqueue: Enqueue, get, counts, one) -> None:
    (sequence,) = enqueue(one)
    assert get(sequence) == QueuedRequest(
        sequence=sequence, request=one, state=AsyncState.QUEUED, end_at=one.expires_at
    )
    assert counts() == (1, 0)


def test_failures_are_listed_and_sent_again(
    any_database: Database, enqueue: Enqueue, lease: Lease, get, counts
) -> None:
    sequences = enqueue(*(request(number) for number in range(4)), body=b"in\x00line")
    for one, outcome in zip(lease(4), (FAILURE, SUCCESS, FAILURE, FAILURE), strict=True):
        with any_database.write() as connection:
            leases.finish(connection, one.sequence, 1, outcome, 1600)
    failed = [sequences[0], *sequences[2:]]
    with any_database.write() as connection:
        page = queue.failures(connection, "End", limit=2)
        rest = queue.failures(connection, "End", after=page[-1].sequence)
        assert [one.sequence for one in (*page, *rest)] == failed
        assert queue.failures(connection, "Other") == []
        assert queue.redrive(connection, [sequences[1], *failed], 5000) == failed
        assert queue.redrive(connection, failed, 5000) == []
    assert counts() == (3, 0)
    (again,) = lease(now=5999)
    assert (again.sequence, again.attempt, again.redrives) == (failed[0], 2, 1)
    assert (again.outcome, again.ended_at) == (None, None)
    with any_database.write() as connection:
        assert queue.body(connection, failed[0]) == b"in\x00line"
        due = leases.lease_due(connection, 10, "w", 6000, 6030)
        assert [one.sequence for one in due] == failed[1:], "as long to wait as at first"


def test_requests_are_found_by_their_label(any_database: Database, enqueue: Enqueue) -> None:
    sequences = enqueue(*(request(number, inference_id="same") for number in range(3)))
    enqueue(request(4), request(5, inference_id="same", endpoint_name="Other"))
    with any_database.read() as connection:
        found = queue.find(connection, "End", "same")
        assert [one.sequence for one in found] == sequences[::-1]
        assert queue.find(connection, "End", "Same") == []
        assert queue.get(connection, 99) is None


def test_positions_and_ages(any_database: Database, enqueue: Enqueue, lease: Lease) -> None:
    sequences = enqueue(*(request(number) for number in range(3)))
    lease()
    with any_database.read() as connection:
        places = [queue.position(connection, "End", sequence) for sequence in sequences]
        assert places == [0, 0, 1]
        assert queue.oldest_received_at(connection, "End") == 1000
        assert queue.oldest_received_at(connection, "Other") is None


def test_the_oldest_are_forgotten_first(
    any_database: Database, enqueue: Enqueue, lease: Lease
) -> None:
    sequences = enqueue(*(request(number) for number in range(5)), body=b"b")
    for number, one in enumerate(lease(4)):
        with any_database.write() as connection:
            leases.finish(connection, one.sequence, 1, FAILURE, 1600 - number)
    with any_database.write() as connection:
        assert queue.forget(connection, 1600, 2) == 2
        assert queue.forget(connection, 1600, 2) == 1
        assert queue.forget(connection, 1600, 2) == 0
        left = [one for one in sequences if queue.get(connection, one)]
        assert left == [sequences[0], sequences[4]]
        assert [one for one in sequences if queue.body(connection, one)] == left


def test_a_sequence_is_never_given_twice(
    any_database: Database, enqueue: Enqueue, lease: Lease
) -> None:
    (first,) = enqueue(request())
    lease()
    with any_database.write() as connection:
        leases.finish(connection, first, 1, FAILURE, 1)
        queue.forget(connection, 2, 1)
    assert enqueue(request())[0] > first


def test_an_endpoints_queue_outlives_it_until_all_has_ended(
    any_database: Database, enqueue: Enqueue, lease: Lease
) -> None:
    (old,) = enqueue(request())
    with any_database.write() as connection:
        queue.set_mode(connection, "End", QueueMode.PAUSED)
        queue.abandon(connection, "End")
        assert not queue.drop_endpoint(connection, "End")
    (new,) = enqueue(request(2))
    with any_database.read() as connection:
        found = queue.endpoint_queue(connection, "End")
    assert old <= found.abandoned_to < new
    assert (found.queued, found.mode) == (2, "OPEN")
    for one in lease(2):
        with any_database.write() as connection:
            leases.finish(connection, one.sequence, 1, FAILURE, 1600)
    with any_database.write() as connection:
        assert queue.drop_endpoint(connection, "End")
        assert queue.endpoint_queues(connection) == []
        assert queue.endpoint_queue(connection, "End") == EndpointQueue(endpoint_name="End")
        queue.set_mode(connection, "End", QueueMode.DRAINING)
        (found,) = queue.endpoint_queues(connection)
        assert found == EndpointQueue(endpoint_name="End", mode=QueueMode.DRAINING)


def test_an_endpoint_takes_up_what_was_abandoned_once_all_has_ended(
    any_database: Database, enqueue: Enqueue, lease: Lease
) -> None:
    enqueue(request())
    (running,) = lease()
    with any_database.write() as connection:
        queue.abandon(connection, "End")
        assert not queue.take_up(connection, "End")
        assert queue.endpoint_queue(connection, "End").abandoned_to == running.sequence
        leases.finish(connection, running.sequence, 1, FAILURE, 5)
        assert queue.take_up(connection, "End")
        assert queue.endpoint_queue(connection, "End").abandoned_to == 0


def test_what_is_being_redriven_is_not_forgotten(postgres: Database) -> None:
    with postgres.write() as connection:
        (sequence,) = queue.enqueue(connection, [(request(endpoint_name="Again"), None)])
        leases.lease(connection, "Again", 1, "w", 1000, 1030)
        leases.finish(connection, sequence, 1, FAILURE, 5)
    with postgres.engine.connect() as first, postgres.engine.connect() as second:
        assert queue.redrive(first, [sequence], 3000) == [sequence]
        second.execute(text("SET LOCAL lock_timeout = 1000"))
        queue.forget(second, 6, 1000)
        first.commit()
        second.commit()
    with postgres.read() as connection:
        found = queue.get(connection, sequence)
        assert found is not None
        assert found.state is AsyncState.QUEUED


@pytest.mark.parametrize(
    ("act", "index"),
    [
        (lambda connection: leases.lease(connection, "End", 1, "w", 1, 2), "queued"),
        (lambda connection: leases.lease_due(connection, 1, "w", 1, 2), "end_at"),
        (lambda connection: leases.reclaim(connection, 1, 1), "leased"),
        (lambda connection: leases.cancellations(connection), "leased"),
        (lambda connection: queue.find(connection, "End", "id"), "inference"),
        (lambda connection: queue.position(connection, "End", 9), "queued"),
        (lambda connection: queue.failures(connection, "End"), "failed"),
        (lambda connection: queue.oldest_received_at(connection, "End"), "queued leased"),
        (lambda connection: queue.forget(connection, 1, 1), "ended_at"),
    ],
)
def test_rows_are_found_by_index(database: Database, act, index: str) -> None:
    asked: list[tuple[str, object]] = []
    listener = lambda _c, _cursor, statement, given, *_: asked.append((statement, given))  # noqa: E731
    event.listen(database.engine, "before_cursor_execute", listener)
    with database.write() as connection:
        act(connection)
    event.remove(database.engine, "before_cursor_execute", listener)
    selects = [one for one in asked if one[0].startswith("SELECT")]
    assert len(selects) == len(index.split())
    for (statement, given), name in zip(selects, index.split(), strict=True):
        with database.read() as connection:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given)
            said = " ".join(row[3] for row in plan)
        assert f"ix_async_requests_{name}" in said
        assert "TEMP B-TREE" not in said
