"""The workers' side of the queue of asynchronous requests: lease, renew, finish, give back.

`attempt` grows with each lease; calls with an older one have no effect.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Integer,
    Row,
    Select,
    Update,
    bindparam,
    delete,
    func,
    select,
    tuple_,
    update,
)

from sagehen.services.sagemaker.async_inference.records import AsyncOutcome, QueuedRequest
from sagehen.services.sagemaker.async_inference.rows import (
    BODIES,
    LEASED,
    QUEUED,
    REQUESTS,
    count,
    read_row,
)

__all__ = [
    "EndedRow",
    "Renewal",
    "cancellations",
    "finish",
    "finish_all",
    "give_back",
    "hold",
    "lease",
    "lease_abandoned",
    "lease_due",
    "reclaim",
    "renew",
]

Held = tuple[int, int]
"""sequence and attempt"""

_MAX_ROWS = 500
"""Statements have a bound on their parameters."""

_COLUMNS = REQUESTS.c


_NO_WORKER: dict[str, Any] = {"worker": None, "lease_until": None}


# Made once: making a statement takes several times as long as running it.
def _waiting(where: ColumnElement[bool], order: ColumnElement[Any]) -> Select[Any]:
    # Rows locked by another transaction are skipped (SQLite has one writer at a time).
    rows = select(_COLUMNS.sequence).where(_COLUMNS.state == QUEUED, where).order_by(order)
    return rows.limit(bindparam("most", type_=Integer)).with_for_update(skip_locked=True)


def _of_attempt() -> Update:
    return update(REQUESTS).where(
        _COLUMNS.sequence == bindparam("of"),
        _COLUMNS.attempt == bindparam("by"),
        _COLUMNS.state == LEASED,
    )


_FIRST = _waiting(_COLUMNS.endpoint_name == bindparam("name"), _COLUMNS.sequence)
_ABANDONED = _waiting(
    (_COLUMNS.endpoint_name == bindparam("name")) & (_COLUMNS.sequence <= bindparam("up_to")),
    _COLUMNS.sequence,
)
_DUE = _waiting(_COLUMNS.end_at <= bindparam("now"), _COLUMNS.end_at)
_CLAIM = (
    update(REQUESTS)
    .where(_COLUMNS.sequence.in_(bindparam("claimed", expanding=True)))
    .values(
        state=LEASED,
        attempt=_COLUMNS.attempt + 1,
        worker=bindparam("worker"),
        lease_until=bindparam("lease_until"),
        # A request ended without being sent does not start.
        started_at=func.coalesce(bindparam("started_at", type_=Double), _COLUMNS.started_at),
    )
    .returning(*REQUESTS.c)
)
_CANCELLED = select(_COLUMNS.sequence, _COLUMNS.attempt).where(
    _COLUMNS.cancel_requested_at.is_not(None), _COLUMNS.state == LEASED
)
_HOLD = (
    select(_COLUMNS.sequence, _COLUMNS.attempt, _COLUMNS.endpoint_name, _COLUMNS.input_location)
    .where(_COLUMNS.sequence.in_(bindparam("held", expanding=True)), _COLUMNS.state == LEASED)
    # Ordered, so that no two transactions wait for each other's row.
    .order_by(_COLUMNS.sequence)
    .with_for_update()
)
_FINISH = _of_attempt().values(
    state=bindparam("state"),
    outcome=bindparam("outcome"),
    ended_at=bindparam("ended_at"),
    **_NO_WORKER,
)
_DROP_BODIES = delete(BODIES).where(BODIES.c.sequence.in_(bindparam("ended", expanding=True)))
_GIVE_BACK = (
    _of_attempt()
    .values(state=QUEUED, lost=_COLUMNS.lost + bindparam("lost", type_=Integer), **_NO_WORKER)
    .returning(_COLUMNS.endpoint_name)
)


class EndedRow(NamedTuple):
    """The end of a leased request."""

    sequence: int
    attempt: int
    outcome: AsyncOutcome
    at: float


class Renewal(NamedTuple):
    """Sequences of requests whose lease was lost, and of those that were cancelled."""

    lost: list[int]
    cancelled: list[int]


def lease(
    connection: Connection, endpoint_name: str, limit: int, worker: str, now: float, until: float
) -> list[QueuedRequest]:
    """Lease the endpoint's oldest requests; the worker ends those that must not be sent."""
    parameters = {"name": endpoint_name, "most": limit}
    return _claim(connection, _FIRST, parameters, worker, until, started_at=now)


def lease_abandoned(
    connection: Connection,
    endpoint_name: str,
    up_to: int,
    limit: int,
    worker: str,
    until: float,
) -> list[QueuedRequest]:
    """Lease requests up to the sequence `up_to`, of a deleted endpoint, to end them."""
    parameters = {"name": endpoint_name, "up_to": up_to, "most": limit}
    return _claim(connection, _ABANDONED, parameters, worker, until)


def lease_due(
    connection: Connection, limit: int, worker: str, now: float, until: float
) -> list[QueuedRequest]:
    """Lease expired and cancelled requests, to end them."""
    return _claim(connection, _DUE, {"most": limit, "now": now}, worker, until)


def _claim(
    connection: Connection,
    waiting: Select[Any],
    parameters: dict[str, Any],
    worker: str,
    until: float,
    started_at: float | None = None,
) -> list[QueuedRequest]:
    claimed = connection.scalars(waiting, parameters).all()
    if not claimed:
        return []
    claim = {
        "claimed": claimed,
        "worker": worker,
        "lease_until": until,
        "started_at": started_at,
    }
    leased = [read_row(row) for row in connection.execute(_CLAIM, claim).mappings()]
    leased.sort(key=lambda queued: queued.sequence)
    count(connection, (queued.request.endpoint_name for queued in leased), queued=-1, leased=1)
    return leased


def renew(connection: Connection, held: Sequence[Held], until: float) -> Renewal:
    renewed: dict[int, bool] = {}
    for start in range(0, len(held), _MAX_ROWS):
        held_rows = tuple_(_COLUMNS.sequence, _COLUMNS.attempt).in_(held[start : start + _MAX_ROWS])
        statement = (
            update(REQUESTS)
            .where(_COLUMNS.state == LEASED, held_rows)
            .values(lease_until=until)
            .returning(_COLUMNS.sequence, _COLUMNS.cancel_requested_at)
        )
        for sequence, cancelled_at in connection.execute(statement):
            renewed[sequence] = cancelled_at is not None
    return Renewal(
        lost=[sequence for sequence, _ in held if sequence not in renewed],
        cancelled=[sequence for sequence, cancelled in renewed.items() if cancelled],
    )


def cancellations(connection: Connection) -> list[Held]:
    return [(row.sequence, row.attempt) for row in connection.execute(_CANCELLED)]


def finish(
    connection: Connection, sequence: int, attempt: int, outcome: AsyncOutcome, now: float
) -> bool:
    """Writes the outcome; returns False if the request is no longer this attempt's: then publish
    nothing.

    An inline body is kept while the request may be redriven.
    """
    return bool(finish_all(connection, [EndedRow(sequence, attempt, outcome, now)]))


def finish_all(connection: Connection, ends: Sequence[EndedRow]) -> set[Held]:
    """Finish up to some hundreds; returns those that were ended."""
    by_key = {(end.sequence, end.attempt): end for end in ends}
    held = _hold(connection, by_key)
    if not held:
        return set()
    connection.execute(_FINISH, [_finish_row(by_key[key]) for key in held])
    count(connection, (row.endpoint_name for row in held.values()), leased=-1)
    done = [
        row.sequence
        for key, row in held.items()
        if row.input_location is None and by_key[key].outcome.state.value == "SUCCEEDED"
    ]
    if done:
        connection.execute(_DROP_BODIES, {"ended": done})
    return set(held)


def hold(connection: Connection, held: Collection[Held]) -> set[Held]:
    """Locks and returns requests that are still leased; up to some hundreds."""
    return set(_hold(connection, held))


def _hold(connection: Connection, held: Collection[Held]) -> dict[Held, Row[Any]]:
    parameters = {"held": [sequence for sequence, _ in held]}
    answered: Sequence[Any] = connection.execute(_HOLD, parameters).all()
    rows = {(row.sequence, row.attempt): row for row in answered}
    return {key: row for key, row in rows.items() if key in held}


def _finish_row(ended: EndedRow) -> dict[str, Any]:
    return {
        "of": ended.sequence,
        "by": ended.attempt,
        "state": ended.outcome.state.value,
        "outcome": msgspec.json.encode(ended.outcome).decode(),
        "ended_at": ended.at,
    }


def give_back(connection: Connection, sequence: int, attempt: int, *, lost: bool) -> bool:
    """Queue a request again; False if it is no longer this attempt's."""
    parameters = {"of": sequence, "by": attempt, "lost": int(lost)}
    row = connection.execute(_GIVE_BACK, parameters).first()
    if row is None:
        return False
    count(connection, [row.endpoint_name], queued=1, leased=-1)
    return True


def reclaim(connection: Connection, now: float, limit: int) -> int:
    """Requeue requests leased until `now`; returns how many."""
    over = _COLUMNS.lease_until <= now
    left = select(_COLUMNS.sequence).where(_COLUMNS.state == LEASED, over)
    sequences = connection.scalars(
        left.order_by(_COLUMNS.lease_until).limit(limit).with_for_update(skip_locked=True)
    ).all()
    statement = (
        update(REQUESTS)
        .where(_COLUMNS.sequence.in_(sequences))
        .values(state=QUEUED, reclaimed=_COLUMNS.reclaimed + 1, **_NO_WORKER)
    )
    names = connection.scalars(statement.returning(_COLUMNS.endpoint_name)).all()
    count(connection, names, queued=1, leased=-1)
    return len(names)
