"""The queue of asynchronous requests, in SQLite and in PostgreSQL."""

import threading
from collections.abc import Callable

import msgspec
import pytest
from sqlalchemy import event, text

from sagehen.services.sagemaker.async_inference import lease_store as leases
from sagehen.services.sagemaker.async_inference import request_store as queue
from sagehen.services.sagemaker.async_inference.records import (
    AsyncOutcome,
    AsyncRequest,
    AsyncState,
    EndpointQueue,
    OutputTarget,
    QueuedRequest,
    QueueMode,
)
from sagehen.state.database import Database

SUCCESS = AsyncOutcome(state=AsyncState.SUCCEEDED, content_type="text/csv", location="s3://o/1.out")
FAILURE = AsyncOutcome(state=AsyncState.FAILED, failure_reason="ClientError: no", status=400)

Enqueue = Callable[..., list[int]]
Lease = Callable[..., list[QueuedRequest]]


def request(number: int = 0, **fields) -> AsyncRequest:
    output = OutputTarget(location=f"s3://out/{number}.out")
    defaults = {
        "request_id": f"00000000-0000-4000-8000-{number:012}",
        "inference_id": f"id {number}",
        "endpoint_name": "End",
        "received_at": 1000.0 + number,
        "expires_at": 2000.0 + number,
        "timeout_seconds": 900.0,
        "input_location": "s3://in/a.csv",
        "output": output,
    }
    return AsyncRequest(**defaults | fields)


@pytest.fixture
def enqueue(any_database: Database) -> Enqueue:
    def put(*requests: AsyncRequest, body: bytes | None = None) -> list[int]:
        with any_database.write() as connection:
            return queue.enqueue(connection, [(one, body) for one in requests])

    return put


@pytest.fixture
def lease(any_database: Database) -> Lease:
    def claim(limit: int = 1, name: str = "End", worker: str = "w", now: float = 1500.0):
        with any_database.write() as connection:
            return leases.lease(connection, name, limit, worker, now, now + 30)

    return claim


@pytest.fixture
def get(any_database: Database) -> Callable[[int], QueuedRequest]:
    def read(sequence: int) -> QueuedRequest:
        with any_database.read() as connection:
            found = queue.get(connection, sequence)
        assert found is not None
        return found

    return read


@pytest.fixture
def counts(any_database: Database) -> Callable[..., tuple[int, int]]:
    def read(name: str = "End") -> tuple[int, int]:
        with any_database.read() as connection:
            return queue.backlog(connection, name)

    return read


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


def test_requests_are_leased_in_the_order_of_receipt(
    enqueue: Enqueue, lease: Lease, counts
) -> None:
    sequences = enqueue(*(request(number) for number in range(5)))
    other = enqueue(request(9, endpoint_name="Other"))
    assert sequences == sorted(sequences)
    assert [one.sequence for one in lease(2)] == sequences[:2]
    assert [one.sequence for one in lease(9)] == sequences[2:]
    assert lease(9) == []
    assert (counts(), counts("Other")) == ((0, 5), (1, 0))
    (one,) = lease(9, "Other")
    assert one.sequence == other[0]
    assert (one.state, one.attempt, one.lease_until, one.started_at) == ("LEASED", 1, 1530, 1500)


def test_only_the_attempt_that_holds_it_ends_it(
    any_database: Database, enqueue: Enqueue, lease: Lease, get, counts
) -> None:
    (sequence,) = enqueue(request())
    lease()
    with any_database.write() as connection:
        assert leases.give_back(connection, sequence, 1, lost=True)
    (second,) = lease()
    assert (second.attempt, second.lost) == (2, 1)
    with any_database.write() as connection:
        assert not leases.finish(connection, sequence, 1, FAILURE, 1600)
        assert not leases.give_back(connection, sequence, 1, lost=True)
        assert leases.finish(connection, sequence, 2, SUCCESS, 1700)
        assert not leases.finish(connection, sequence, 2, FAILURE, 1800)
        assert not leases.give_back(connection, sequence, 2, lost=False)
    ended = get(sequence)
    assert (ended.state, ended.outcome, ended.ended_at) == ("SUCCEEDED", SUCCESS, 1700)
    assert ended.lease_until is None
    assert counts() == (0, 0)


def test_renewing_tells_what_is_lost_and_what_is_to_end(
    any_database: Database, enqueue: Enqueue, lease: Lease, get
) -> None:
    kept, gone, cancelled = enqueue(*(request(number) for number in range(3)))
    lease(3)
    with any_database.write() as connection:
        leases.give_back(connection, gone, 1, lost=False)
        assert queue.cancel(connection, cancelled, 1550)
    lease(worker="other")
    with any_database.write() as connection:
        held = [(kept, 1), (gone, 1), (cancelled, 1)]
        assert leases.renew(connection, held, 1590) == ([gone], [cancelled])
        assert leases.cancellations(connection) == [(cancelled, 1)]
        assert leases.renew(connection, [], 1590) == ([], [])
    assert get(kept).lease_until == 1590
    assert get(gone).lease_until == 1530, "somebody else's lease is not renewed"


def test_many_leases_are_renewed(any_database: Database, enqueue: Enqueue, lease: Lease) -> None:
    sequences = enqueue(*(request(number) for number in range(1200)))
    lease(1200)
    with any_database.write() as connection:
        renewal = leases.renew(connection, [(sequence, 1) for sequence in sequences], 9999)
        assert renewal == ([], [])
        assert leases.reclaim(connection, 9998, 5000) == 0


def test_a_lease_that_ran_out_is_anyones(
    any_database: Database, enqueue: Enqueue, lease: Lease, get, counts
) -> None:
    first, second, third = enqueue(*(request(number) for number in range(3)))
    lease(now=1500)
    lease(now=1501, worker="other")
    with any_database.write() as connection:
        assert leases.reclaim(connection, 1529.9, 10) == 0
        assert leases.reclaim(connection, 1530, 10) == 1
    assert (get(first).state, get(first).reclaimed, get(first).lost) == ("QUEUED", 1, 0)
    assert counts() == (2, 1)
    with any_database.write() as connection:
        # A worker that starts anew takes its own without waiting.
        assert leases.reclaim(connection, 0, 10, worker="other") == 1
    assert counts() == (3, 0)
    assert [one.sequence for one in lease(3)] == [first, second, third]


def test_what_is_too_old_or_cancelled_is_claimed_to_be_ended(
    any_database: Database, enqueue: Enqueue, counts
) -> None:
    late, cancelled, waiting = enqueue(
        request(1, expires_at=1400.0), request(2, endpoint_name="Other"), request(3)
    )
    with any_database.write() as connection:
        assert queue.cancel(connection, cancelled, 1450)
        assert leases.lease_due(connection, 10, "w", 1399, 1500)[0].sequence == cancelled
        (due,) = leases.lease_due(connection, 10, "w", 1400, 1500)
    assert (due.sequence, due.cancel_requested) == (late, False)
    assert (counts(), counts("Other")) == ((1, 1), (0, 1))
    with any_database.write() as connection:
        for sequence in (late, cancelled):
            assert leases.finish(connection, sequence, 1, FAILURE, 1500)
        assert not queue.cancel(connection, late, 1500)
        assert queue.cancel(connection, waiting, 1500)


def test_what_is_only_ended_has_not_started(
    any_database: Database, enqueue: Enqueue, lease: Lease, get
) -> None:
    sent, left = enqueue(request(), request(1))
    lease(1)
    with any_database.write() as connection:
        leases.give_back(connection, sent, 1, lost=True)
        leases.lease_abandoned(connection, "End", left, 9, "w", 9999)
    assert (get(sent).attempt, get(sent).started_at) == (2, 1500)
    assert (get(left).attempt, get(left).started_at) == (1, None)


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


def test_an_inline_body_goes_with_success(
    any_database: Database, enqueue: Enqueue, lease: Lease
) -> None:
    (sequence,) = enqueue(request(input_location=None), body=b"x" * 128_000)
    lease()
    with any_database.write() as connection:
        assert queue.body(connection, sequence) == b"x" * 128_000
        leases.finish(connection, sequence, 1, SUCCESS, 1600)
        assert queue.body(connection, sequence) is None


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


def test_no_two_workers_lease_the_same(any_database: Database, enqueue: Enqueue) -> None:
    sequences = enqueue(*(request(number) for number in range(200)))
    taken: list[int] = []

    def work(worker: str) -> None:
        while True:
            with any_database.write() as connection:
                mine = leases.lease(connection, "End", 3, worker, 1500, 1530)
            if not mine:
                return
            taken.extend(one.sequence for one in mine)

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sequences


def test_a_worker_does_not_wait_for_what_another_is_leasing(postgres: Database) -> None:
    with postgres.write() as connection:
        queue.enqueue(connection, [(request(n, endpoint_name="Skip"), None) for n in range(3)])
        connection.commit()
    with postgres.engine.connect() as first, postgres.engine.connect() as second:
        rows = text("SELECT sequence FROM async_requests WHERE endpoint_name='Skip' FOR UPDATE")
        assert len(first.execute(rows).fetchmany(3)) == 3
        second.execute(text("SET LOCAL lock_timeout = 1000"))
        assert leases.lease(second, "Skip", 3, "w", 1500, 1530) == []


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


def test_outcomes_are_whole(any_database: Database, enqueue: Enqueue, lease: Lease, get) -> None:
    for state in AsyncState:
        if state.is_final:
            (sequence,) = enqueue(request())
            lease()
            outcome = msgspec.structs.replace(FAILURE, state=state)
            with any_database.write() as connection:
                assert leases.finish(connection, sequence, 1, outcome, 1600)
            assert get(sequence).outcome == outcome
