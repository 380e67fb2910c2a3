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
    found = rows.select_records(connection, STACKS, StackRecord, STACKS.c.name == name, lock=lock)
    return found[0] if found else None


def update(connection: Connection, record: StackRecord) -> None:
    """Read the record before by `get` with `lock`."""
    rows.update_where(connection, STACKS, record, STACKS.c.name == record.name)


def delete(connection: Connection, name: str) -> None:
    rows.delete_where(connection, STACKS, STACKS.c.name == name)


def list_page(connection: Connection, after: str, limit: int) -> list[dict[str, Any]]:
    """Lists stacks without their content."""
    columns = [column for column in STACKS.c if column.name != "content"]
    statement = select(*columns).where(STACKS.c.name > after).order_by(STACKS.c.name).limit(limit)
    return [dict(row) for row in connection.execute(statement).mappings()]


PAGE = 100
LARGEST_PAGE = 1000
LONGEST_CLAIM_SECONDS = 3600
_AT = "/_sagehen/stacks"
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class _Put(msgspec.Struct, forbid_unknown_fields=True):
    version: Annotated[int, msgspec.Meta(ge=0, lt=2**31 - 1)]
    holder: _Text
    content: dict[str, Any]
    who: _Text
    claim_seconds: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_CLAIM_SECONDS)] = 0
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

    def list_all(self, asked: OwnPathRequest) -> dict[str, Any]:
        limit = number_in(asked.query, "limit", PAGE, 1, LARGEST_PAGE)
        with self._database.read() as connection:
            found = list_page(connection, asked.query.get("after", ""), limit + 1)
        following = found[limit - 1]["name"] if len(found) > limit else None
        return {"stacks": found[:limit], "next": following}

    def read(self, asked: OwnPathRequest) -> StackRecord:
        with self._database.read() as connection:
            return _existing(connection, asked, lock=False)

    def put(self, asked: OwnPathRequest) -> StackRecord:
        name, wanted = _name(asked), _decode(asked.body)
        with self._database.write() as connection:
            kept = get(connection, name, lock=True)
            self._check(name, kept, wanted.version, wanted.holder, wanted.over)
            record = self._written(name, kept, wanted)
            if kept is not None:
                update(connection, record)
            elif not insert(connection, record):
                raise Conflict(f"The stack {name} was made by another run just now.")
        return record

    def delete(self, asked: OwnPathRequest) -> dict[str, Any]:
        version = number_in(asked.query, "version", None, 1, 2**31 - 1)
        with self._database.write() as connection:
            kept = _existing(connection, asked, lock=True)
            self._check(kept.name, kept, version, asked.query.get("holder", ""), None)
            delete(connection, kept.name)
        return {}

    def _check(
        self, name: str, kept: StackRecord | None, version: int, holder: str, over: str | None
    ) -> None:
        claim = kept.claim if kept else None
        if (
            kept is not None
            and claim is not None
            and _holds(kept.modified_at, claim, self._clock.now())
            and claim.holder not in (holder, over)
        ):
            raise Conflict(
                f"{claim.who} works on the stack {name}, since {_time(claim.since)}; unless it is "
                f"renewed, that claim runs out at {_time(claim.expires_at)}. Try again then."
            )
        there = kept.version if kept else 0
        if version != there:
            raise Conflict(
                f"The stack {name} is at version {there} and not at {version}: somebody else has "
                "written it since it was read. Run it again."
            )

    def _written(self, name: str, kept: StackRecord | None, wanted: _Put) -> StackRecord:
        now = self._clock.now()
        claim = None
        if wanted.claim_seconds:
            mine = kept is not None and kept.claim and kept.claim.holder == wanted.holder
            claim = StackClaim(
                holder=wanted.holder,
                who=wanted.who,
                since=kept.claim.since if mine and kept and kept.claim else now,
                expires_at=now + wanted.claim_seconds,
            )
        return StackRecord(
            name=name,
            version=wanted.version + 1,
            created_at=kept.created_at if kept else now,
            modified_at=now,
            content=wanted.content,
            claim=claim,
        )


def _holds(written_at: float, claim: StackClaim, now: float) -> bool:
    """Whether a claim is in force; a clock set back by more than the claim's length ends it."""
    seconds = claim.expires_at - written_at
    return written_at - seconds <= now < claim.expires_at


def _existing(connection: Connection, asked: OwnPathRequest, lock: bool) -> StackRecord:
    name = _name(asked)
    found = get(connection, name, lock)
    if found is None:
        raise NotFound(f"There is no stack {name}.")
    return found


def _name(asked: OwnPathRequest) -> str:
    try:
        return msgspec.convert(asked.path["name"], _Name)
    except msgspec.ValidationError:
        raise Invalid(
            "The name of a stack has up to 128 letters, digits and hyphens, the first a letter."
        ) from None


def _decode(body: bytes) -> _Put:
    try:
        return msgspec.json.decode(body, type=_Put)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"The body is not what a stack is written with: {error}.") from error


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
