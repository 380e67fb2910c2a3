"""`/_sagehen/stacks/…`: stores what `sagehen apply` has made of each template.

GET    …?after=&limit=               stacks by name, without their content
GET    …/{name}                      {"name", "version", "created_at", "modified_at", "content",
                                     "claim": {"holder", "who", "since", "expires_at"} or null}
PUT    …/{name}                      write; returns the new stack
DELETE …/{name}?version=&holder=     delete

The body of PUT is

    {"version": 3, "holder": "…", "who": "anna@host", "claim_seconds": 60, "content": {…}}

`version` is the one that was read, 0 for none; if another client has written since, the answer
is 409. `claim_seconds` keeps other holders from writing for so long; 0 ends the claim. `over`
names the holder of a claim that is known to be dead.
"""

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from sqlalchemy import JSON, Column, Connection, Double, Integer, String, Table, select
from starlette.routing import Route

from sagehen.base.clock import Clock
from sagehen.base.errors import Conflict, Invalid, NotFound
from sagehen.frame.own_paths.routes import OwnPathRequest, number_in, own_route
from sagehen.state import rows
from sagehen.state.database import Database
from sagehen.state.rows import METADATA

__all__ = [
    "STACKS",
    "StackClaim",
    "StackRecord",
    "delete",
    "get",
    "insert",
    "list_page",
    "stack_routes",
    "update",
]


class StackClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The run that works on a stack now; a claim ends unless it is renewed."""

    holder: str
    """One run of `sagehen apply`."""
    who: str
    """For people: user, machine and process."""
    since: float
    """Seconds since the epoch, as every time here."""
    expires_at: float


class StackRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stack, as its client wrote it."""

    name: str
    version: int
    """grows by one with every write"""
    created_at: float
    modified_at: float
    content: dict[str, Any]
    """Opaque to the server."""
    claim: StackClaim | None = None


STACKS = Table(
    "stacks",
    METADATA,
    Column("name", String(128), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("modified_at", Double, nullable=False),
    Column("content", JSON(none_as_null=True), nullable=False),
    Column("claim", JSON(none_as_null=True)),
)


def insert(connection: Connection, record: StackRecord) -> bool:
    """Returns False if the name is taken."""
    return rows.insert_new(connection, STACKS, record)


def get(connection: Connection, name: str, lock: bool = False) -> StackRecord | None:
    """Returns the stack; with `lock`, nobody else can write it until this transaction ends."""
    records = rows.select_records(connection, STACKS, StackRecord, STACKS.c.name == name, lock=lock)
    return records[0] if records else None


def update(connection: Connection, record: StackRecord) -> None:
    """Needs the record to be locked, by `get` with `lock`."""
    rows.update_where(connection, STACKS, record, STACKS.c.name == record.name)


def delete(connection: Connection, name: str) -> None:
    rows.delete_where(connection, STACKS, STACKS.c.name == name)


def list_page(connection: Connection, after: str, limit: int) -> list[dict[str, Any]]:
    """Lists stacks without their content."""
    columns = [column for column in STACKS.c if column.name != "content"]
    statement = select(*columns).where(STACKS.c.name > after).order_by(STACKS.c.name).limit(limit)
    return [dict(row) for row in connection.execute(statement).mappings()]


PAGE = 100
MAX_PAGE_SIZE = 1000
MAX_CLAIM_SECONDS = 3600
_AT = "/_sagehen/stacks"
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class _Put(msgspec.Struct, forbid_unknown_fields=True):
    version: Annotated[int, msgspec.Meta(ge=0, lt=2**31 - 1)]
    holder: _Text
    content: dict[str, Any]
    who: _Text
    claim_seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_CLAIM_SECONDS)] = 0
    over: str | None = None


_Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,127}$")]


def stack_routes(database: Database, clock: Clock) -> list[Route]:
    paths = _StackPaths(database, clock)
    named = {"GET": paths.read, "PUT": paths.put, "DELETE": paths.delete}
    return [
        own_route(_AT, {"GET": paths.list_all}),
        own_route(_AT + "/{name}", named),
    ]


class _StackPaths:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def list_all(self, request: OwnPathRequest) -> dict[str, Any]:
        limit = number_in(request.query, "limit", PAGE, 1, MAX_PAGE_SIZE)
        with self._database.read() as connection:
            records = list_page(connection, request.query.get("after", ""), limit + 1)
        following = records[limit - 1]["name"] if len(records) > limit else None
        return {"stacks": records[:limit], "next": following}

    def read(self, request: OwnPathRequest) -> StackRecord:
        with self._database.read() as connection:
            return _existing(connection, request, lock=False)

    def put(self, request: OwnPathRequest) -> StackRecord:
        name, desired = _name(request), _decode(request.body)
        with self._database.write() as connection:
            existing = get(connection, name, lock=True)
            self._check(name, existing, desired.version, desired.holder, desired.over)
            record = self._written(name, existing, desired)
            if existing is not None:
                update(connection, record)
            elif not insert(connection, record):
                raise Conflict(f"The stack {name} was made by another run just now.")
        return record

    def delete(self, request: OwnPathRequest) -> dict[str, Any]:
        version = number_in(request.query, "version", None, 1, 2**31 - 1)
        with self._database.write() as connection:
            record = _existing(connection, request, lock=True)
            self._check(record.name, record, version, request.query.get("holder", ""), None)
            delete(connection, record.name)
        return {}

    def _check(
        self, name: str, record: StackRecord | None, version: int, holder: str, over: str | None
    ) -> None:
        claim = record.claim if record else None
        if (
            record is not None
            and claim is not None
            and _holds(record.modified_at, claim, self._clock.now())
            and claim.holder not in (holder, over)
        ):
            raise Conflict(
                f"{claim.who} works on the stack {name}, since {_time(claim.since)}; unless it is "
                f"renewed, that claim runs out at {_time(claim.expires_at)}. Try again then."
            )
        current = record.version if record else 0
        if version != current:
            raise Conflict(
                f"The stack {name} is at version {current} and not at {version}: somebody else has "
                "written it since it was read. Run it again."
            )

    def _written(self, name: str, record: StackRecord | None, desired: _Put) -> StackRecord:
        now = self._clock.now()
        claim = None
        if desired.claim_seconds:
            is_own_claim = (
                record is not None and record.claim and record.claim.holder == desired.holder
            )
            claim = StackClaim(
                holder=desired.holder,
                who=desired.who,
                since=record.claim.since if is_own_claim and record and record.claim else now,
                expires_at=now + desired.claim_seconds,
            )
        return StackRecord(
            name=name,
            version=desired.version + 1,
            created_at=record.created_at if record else now,
            modified_at=now,
            content=desired.content,
            claim=claim,
        )


def _holds(written_at: float, claim: StackClaim, now: float) -> bool:
    """Whether a claim is in force; a clock set back by more than the claim's length ends it."""
    seconds = claim.expires_at - written_at
    return written_at - seconds <= now < claim.expires_at


def _existing(connection: Connection, request: OwnPathRequest, lock: bool) -> StackRecord:
    name = _name(request)
    record = get(connection, name, lock)
    if record is None:
        raise NotFound(f"There is no stack {name}.")
    return record


def _name(request: OwnPathRequest) -> str:
    try:
        return msgspec.convert(request.path["name"], _Name)
    except msgspec.ValidationError:
        raise Invalid(
            "The name of a stack has up to 128 letters, digits and hyphens, the first a letter."
        ) from None


def _decode(body: bytes) -> _Put:
    try:
        return msgspec.json.decode(body, type=_Put)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"The request body is not a valid stack: {error}.") from error


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
