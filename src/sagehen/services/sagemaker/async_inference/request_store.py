"""The users' side of the queue of asynchronous requests: enqueue, find, cancel, redrive.

The workers' side is `lease_store`. Costs do not grow with the queue's length.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    update,
)

from sagehen.services.sagemaker.async_inference.records import (
    AsyncRequest,
    EndpointQueue,
    QueuedRequest,
    QueueMode,
)
from sagehen.services.sagemaker.async_inference.rows import (
    BODIES,
    ENDPOINTS,
    FAILED,
    LEASED,
    QUEUED,
    REQUESTS,
    count,
    read_row,
    row_of,
)
from sagehen.state.rows import delete_where, upsert

__all__ = [
    "MAX_POSITION",
    "abandon",
    "backlog",
    "bodies",
    "body",
    "cancel",
    "drop_endpoint",
    "endpoint_queue",
    "endpoint_queues",
    "enqueue",
    "failures",
    "find",
    "forget",
    "get",
    "oldest_received_at",
    "position",
    "redrive",
    "set_mode",
    "take_up",
]

MAX_POSITION = 100_000
"""The highest position counted."""

MAX_FOUND = 100

_COLUMNS = REQUESTS.c
# Made once: making a statement takes longer than running it.
_QUEUE_FIELDS = EndpointQueue.__struct_fields__
_QUEUES = select(*(ENDPOINTS.c[name] for name in _QUEUE_FIELDS)).order_by(ENDPOINTS.c.endpoint_name)
_QUEUE = _QUEUES.where(ENDPOINTS.c.endpoint_name == bindparam("name"))
_INSERT = insert(REQUESTS).returning(_COLUMNS.sequence, sort_by_parameter_order=True)
_INSERT_BODIES = insert(BODIES)
_BODY = select(BODIES.c.body).where(BODIES.c.sequence == bindparam("of"))
_BODIES = select(BODIES.c.sequence, BODIES.c.body).where(
    BODIES.c.sequence.in_(bindparam("of", expanding=True)),
    func.length(BODIES.c.body) <= bindparam("most", type_=Integer),
)


def enqueue(
    connection: Connection, requests: Sequence[tuple[AsyncRequest, bytes | None]]
) -> list[int]:
    sequences = list(connection.scalars(_INSERT, [row_of(request) for request, _ in requests]))
    inlines = [
        {"sequence": sequence, "body": inline}
        for sequence, (_, inline) in zip(sequences, requests, strict=True)
        if inline is not None
    ]
    if inlines:
        connection.execute(_INSERT_BODIES, inlines)
    count(connection, (request.endpoint_name for request, _ in requests), queued=1)
    return sequences


def body(connection: Connection, sequence: int) -> bytes | None:
    """Returns None if the input is an object, or the request has succeeded."""
    return connection.scalar(_BODY, {"of": sequence})


def bodies(connection: Connection, sequences: Sequence[int], max_bytes: int) -> dict[int, bytes]:
    """Returns inline bodies of at most `max_bytes` bytes, for up to some hundred sequences."""
    content: dict[int, bytes] = {}
    if sequences:
        parameters = {"of": sequences, "most": max_bytes}
        content.update((row[0], row[1]) for row in connection.execute(_BODIES, parameters))
    return content


def get(connection: Connection, sequence: int) -> QueuedRequest | None:
    requests = _read(connection, select(REQUESTS).where(_COLUMNS.sequence == sequence))
    return requests[0] if requests else None


def find(connection: Connection, endpoint_name: str, inference_id: str) -> list[QueuedRequest]:
    """Returns the newest first; an InferenceId is a label and may come twice."""
    where = (_COLUMNS.endpoint_name == endpoint_name) & (_COLUMNS.inference_id == inference_id)
    newest = select(REQUESTS).where(where).order_by(_COLUMNS.sequence.desc()).limit(MAX_FOUND)
    return _read(connection, newest)


def position(connection: Connection, endpoint_name: str, sequence: int) -> int:
    """Returns how many requests wait before this one, up to MAX_POSITION."""
    before = (
        select(_COLUMNS.sequence)
        .where(
            _COLUMNS.endpoint_name == endpoint_name,
            _COLUMNS.state == QUEUED,
            _COLUMNS.sequence < sequence,
        )
        .limit(MAX_POSITION)
    )
    return connection.scalar(select(func.count()).select_from(before.subquery())) or 0


def failures(
    connection: Connection, endpoint_name: str, after: int = 0, limit: int = 100
) -> list[QueuedRequest]:
    page = (
        select(REQUESTS)
        .where(
            _COLUMNS.endpoint_name == endpoint_name,
            _COLUMNS.state.in_(FAILED),
            _COLUMNS.sequence > after,
        )
        .order_by(_COLUMNS.sequence)
        .limit(limit)
    )
    return _read(connection, page)


def cancel(connection: Connection, sequence: int, now: float) -> bool:
    """Asks the dispatcher to end a request, with a failure object and a notice; False if it has
    ended."""
    open_ = (_COLUMNS.state == QUEUED) | (_COLUMNS.state == LEASED)
    statement = update(REQUESTS).where(_COLUMNS.sequence == sequence, open_)
    values = {"cancel_requested_at": now, "end_at": 0.0}
    return connection.execute(statement.values(values)).rowcount == 1


def redrive(connection: Connection, sequences: Sequence[int], now: float) -> list[int]:
    """Queue failed, expired and cancelled requests again; returns those.

    Each keeps its place in the order and gets its original time to wait.
    """
    until = literal(now) + (_COLUMNS.expires_at - _COLUMNS.received_at)
    statement = (
        update(REQUESTS)
        .where(_COLUMNS.sequence.in_(sequences), _COLUMNS.state.in_(FAILED))
        .values(
            state=QUEUED,
            redrives=_COLUMNS.redrives + 1,
            lost=0,
            reclaimed=0,
            end_at=until,
            cancel_requested_at=None,
            ended_at=None,
            outcome=None,
        )
        .returning(_COLUMNS.sequence, _COLUMNS.endpoint_name)
    )
    again = connection.execute(statement).all()
    count(connection, (row.endpoint_name for row in again), queued=1)
    return sorted(row.sequence for row in again)


def forget(connection: Connection, before: float, limit: int) -> int:
    old = (
        select(_COLUMNS.sequence)
        .where(_COLUMNS.ended_at < before)
        .order_by(_COLUMNS.ended_at)
        .limit(limit)
        # Locked, so that none is redriven before it is deleted.
        .with_for_update(skip_locked=True)
    )
    sequences = connection.scalars(old).all()
    connection.execute(delete(BODIES).where(BODIES.c.sequence.in_(sequences)))
    connection.execute(delete(REQUESTS).where(_COLUMNS.sequence.in_(sequences)))
    return len(sequences)


def endpoint_queue(connection: Connection, endpoint_name: str) -> EndpointQueue:
    row = connection.execute(_QUEUE, {"name": endpoint_name}).first()
    return _read_queue(row) if row else EndpointQueue(endpoint_name=endpoint_name)


def endpoint_queues(connection: Connection) -> list[EndpointQueue]:
    """Returns the queues by name, except of deleted endpoints."""
    return [_read_queue(row) for row in connection.execute(_QUEUES)]


def backlog(connection: Connection, endpoint_name: str) -> tuple[int, int]:
    sizes = endpoint_queue(connection, endpoint_name)
    return sizes.queued, sizes.leased


def oldest_received_at(connection: Connection, endpoint_name: str) -> float | None:
    """Returns None if all requests have ended."""
    waiting = (
        select(_COLUMNS.received_at)
        .where(_COLUMNS.endpoint_name == endpoint_name, _COLUMNS.state == QUEUED)
        .order_by(_COLUMNS.sequence)
        .limit(1)
    )
    running = select(func.min(_COLUMNS.received_at)).where(
        _of_running(endpoint_name), _COLUMNS.state == LEASED
    )
    times = [connection.scalar(waiting), connection.scalar(running)]
    return min((time for time in times if time is not None), default=None)


def set_mode(connection: Connection, endpoint_name: str, mode: QueueMode) -> None:
    statement = upsert(connection, ENDPOINTS).values(endpoint_name=endpoint_name, mode=mode.value)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=[ENDPOINTS.c.endpoint_name], set_={"mode": mode.value}
        )
    )


def abandon(connection: Connection, endpoint_name: str) -> None:
    """Marks a deleted endpoint's requests to be ended without being sent.

    Requests to a new endpoint of the same name are not affected.
    """
    newest = select(func.coalesce(func.max(_COLUMNS.sequence), 0)).scalar_subquery()
    connection.execute(
        update(ENDPOINTS)
        .where(ENDPOINTS.c.endpoint_name == endpoint_name)
        .values(abandoned_to=newest, mode=QueueMode.OPEN.value)
    )


def take_up(connection: Connection, endpoint_name: str) -> bool:
    """Let a new endpoint of the name own abandoned requests that are redriven later.

    Returns False while an abandoned one is still leased. None may be waiting.
    """
    columns = ENDPOINTS.c
    of_endpoint = columns.endpoint_name == endpoint_name
    running = exists().where(
        _of_running(endpoint_name),
        _COLUMNS.state == LEASED,
        _COLUMNS.sequence <= columns.abandoned_to,
    )
    statement = update(ENDPOINTS).where(of_endpoint, ~running).values(abandoned_to=0)
    return connection.execute(statement).rowcount == 1


def drop_endpoint(connection: Connection, endpoint_name: str) -> bool:
    """Returns False while some of its requests have not ended."""
    columns = ENDPOINTS.c
    empty = (columns.queued == 0) & (columns.leased == 0)
    return delete_where(connection, ENDPOINTS, columns.endpoint_name == endpoint_name, empty)


def _of_running(endpoint_name: str) -> ColumnElement[bool]:
    # Few are leased at once. `coalesce` keeps SQLite from the name index, which holds all requests
    # the endpoint ever had.
    return func.coalesce(_COLUMNS.endpoint_name, "") == endpoint_name


def _read_queue(row: Row[Any]) -> EndpointQueue:
    queue: dict[str, Any] = dict(zip(_QUEUE_FIELDS, row, strict=True))
    return EndpointQueue(**queue | {"mode": QueueMode(queue["mode"])})


def _read(connection: Connection, statement: Select[Any]) -> list[QueuedRequest]:
    return [read_row(row) for row in connection.execute(statement).mappings()]
