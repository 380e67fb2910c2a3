"""The queue of asynchronous requests, from its workers' side: claimed for a while, kept, ended.

A worker's claim is the row's `attempt`, which grows with each lease: what a worker says of a
request whose attempt has moved on since does not count.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, Update, delete, or_, select, tuple_, update

from sagehen.domain.asynchronous import Outcome, QueuedRequest
from sagehen.store.async_rows import count, read_row
from sagehen.store.async_tables import BODIES, LEASED, QUEUED, REQUESTS

__all__ = [
    "Renewal",
    "cancellations",
    "finish",
    "give_back",
    "lease",
    "lease_due",
    "reclaim",
    "renew",
]

Held = tuple[int, int]
"""The sequence of a request, and the attempt that is ours."""

_MOST_AT_ONCE = 500
"""Parameters have a bound in a statement."""

_COLUMNS = REQUESTS.c


class Renewal(NamedTuple):
    """What came of renewing leases: sequences."""

    lost: list[int]
    """No longer the worker's."""
    cancelled: list[int]
    """Still the worker's, and asked to end."""


def lease(
    connection: Connection, endpoint_name: str, limit: int, worker: str, now: float, until: float
) -> list[QueuedRequest]:
    """Claim the endpoint's first `limit` requests until then, in the order of receipt.

    They are taken as they stand: one that should be ended instead of sent is the worker's to end.
    """
    mine = _COLUMNS.endpoint_name == endpoint_name
    return _claim(connection, [mine], _COLUMNS.sequence, limit, worker, now, until)


def lease_due(
    connection: Connection, limit: int, worker: str, now: float, until: float
) -> list[QueuedRequest]:
    """Claim requests that are to be ended without being sent: too old, or cancelled."""
    due = _COLUMNS.end_at <= now
    return _claim(connection, [due], _COLUMNS.end_at, limit, worker, now, until)


def _claim(
    connection: Connection,
    where: list[ColumnElement[bool]],
    order: ColumnElement[Any],
    limit: int,
    worker: str,
    now: float,
    until: float,
) -> list[QueuedRequest]:
    waiting = select(_COLUMNS.sequence).where(_COLUMNS.state == QUEUED, *where).order_by(order)
    # Who is claimed by another transaction is passed over (SQLite has one writer at a time).
    claimed = connection.scalars(waiting.limit(limit).with_for_update(skip_locked=True)).all()
    if not claimed:
        return []
    statement = (
        update(REQUESTS)
        .where(_COLUMNS.sequence.in_(claimed))
        .values(
            state=LEASED,
            attempt=_COLUMNS.attempt + 1,
            worker=worker,
            lease_until=until,
            started_at=now,
        )
        .returning(*REQUESTS.c)
    )
    rows = connection.execute(statement).mappings()
    leased = sorted((read_row(row) for row in rows), key=lambda one: one.sequence)
    count(connection, (one.request.endpoint_name for one in leased), queued=-1, leased=1)
    return leased


def renew(connection: Connection, held: Sequence[Held], until: float) -> Renewal:
    """Keep leases until then."""
    kept: dict[int, bool] = {}
    for start in range(0, len(held), _MOST_AT_ONCE):
        mine = tuple_(_COLUMNS.sequence, _COLUMNS.attempt).in_(held[start : start + _MOST_AT_ONCE])
        statement = (
            update(REQUESTS)
            .where(_COLUMNS.state == LEASED, mine)
            .values(lease_until=until)
            .returning(_COLUMNS.sequence, _COLUMNS.cancel_requested_at)
        )
        for sequence, cancelled_at in connection.execute(statement):
            kept[sequence] = cancelled_at is not None
    return Renewal(
        lost=[sequence for sequence, _ in held if sequence not in kept],
        cancelled=[sequence for sequence, cancelled in kept.items() if cancelled],
    )


def cancellations(connection: Connection) -> list[Held]:
    """Requests that are worked on and were asked to end."""
    asked = _COLUMNS.cancel_requested_at.is_not(None) & (_COLUMNS.state == LEASED)
    rows = connection.execute(select(_COLUMNS.sequence, _COLUMNS.attempt).where(asked))
    return [(row.sequence, row.attempt) for row in rows]


def finish(
    connection: Connection, sequence: int, attempt: int, outcome: Outcome, now: float
) -> bool:
    """Write down what came of it; False where the request is no longer this attempt's.

    Then nothing may be told of it either. An inline body stays for as long as it may be redriven.
    """
    statement = _mine(sequence, attempt).values(
        state=outcome.state.value,
        outcome=msgspec.json.encode(outcome).decode(),
        ended_at=now,
        **_NOBODYS,
    )
    row = connection.execute(
        statement.returning(_COLUMNS.endpoint_name, _COLUMNS.input_location)
    ).first()
    if row is None:
        return False
    count(connection, [row.endpoint_name], leased=-1)
    if row.input_location is None and outcome.state.value == "SUCCEEDED":
        connection.execute(delete(BODIES).where(BODIES.c.sequence == sequence))
    return True


def give_back(connection: Connection, sequence: int, attempt: int, *, lost: bool) -> bool:
    """Queue it again where it was; False where it is no longer this attempt's.

    With `lost`, that counts as an attempt whose instance was lost.
    """
    statement = _mine(sequence, attempt).values(
        state=QUEUED, lost=_COLUMNS.lost + int(lost), **_NOBODYS
    )
    row = connection.execute(statement.returning(_COLUMNS.endpoint_name)).first()
    if row is None:
        return False
    count(connection, [row.endpoint_name], queued=1, leased=-1)
    return True


def reclaim(connection: Connection, now: float, limit: int, worker: str | None = None) -> int:
    """Queue again what was leased until now or earlier, or by `worker`; how many those were."""
    over = _COLUMNS.lease_until <= now
    if worker is not None:
        over = or_(over, _COLUMNS.worker == worker)
    left = select(_COLUMNS.sequence).where(_COLUMNS.state == LEASED, over)
    sequences = connection.scalars(
        left.order_by(_COLUMNS.lease_until).limit(limit).with_for_update(skip_locked=True)
    ).all()
    statement = (
        update(REQUESTS)
        .where(_COLUMNS.sequence.in_(sequences))
        .values(state=QUEUED, reclaimed=_COLUMNS.reclaimed + 1, **_NOBODYS)
    )
    names = connection.scalars(statement.returning(_COLUMNS.endpoint_name)).all()
    count(connection, names, queued=1, leased=-1)
    return len(names)


_NOBODYS: dict[str, Any] = {"worker": None, "lease_until": None}


def _mine(sequence: int, attempt: int) -> Update:
    return update(REQUESTS).where(
        _COLUMNS.sequence == sequence, _COLUMNS.attempt == attempt, _COLUMNS.state == LEASED
    )
