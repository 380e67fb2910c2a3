"""Leases of asynchronous requests, in SQLite and in PostgreSQL."""

import math
import threading

import msgspec
from sqlalchemy import text

from sagehen.services.sagemaker.async_inference import lease_store as leases
from sagehen.services.sagemaker.async_inference import request_store as queue
from sagehen.services.sagemaker.async_inference.records import AsyncState
from sagehen.state.database import Database
from support.fixtures.async_queue import FAILURE, SUCCESS, Enqueue, Lease, request


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
        assert leases.reclaim(connection, math.inf, 10) == 1
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


def test_an_inline_body_goes_with_success(
    any_database: Database, enqueue: Enqueue, lease: Lease
) -> None:
    (sequence,) = enqueue(request(input_location=None), body=b"x" * 128_000)
    lease()
    with any_database.write() as connection:
        assert queue.body(connection, sequence) == b"x" * 128_000
        leases.finish(connection, sequence, 1, SUCCESS, 1600)
        assert queue.body(connection, sequence) is None


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


def test_outcomes_are_whole(any_database: Database, enqueue: Enqueue, lease: Lease, get) -> None:
    for state in AsyncState:
        if state.is_final:
            (sequence,) = enqueue(request())
            lease()
            outcome = msgspec.structs.replace(FAILURE, state=state)
            with any_database.write() as connection:
                assert leases.finish(connection, sequence, 1, outcome, 1600)
            assert get(sequence).outcome == outcome
