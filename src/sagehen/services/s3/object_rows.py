"""SQL of the object store: buckets, objects, uploads and blobs."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    bindparam,
    delete,
    insert,
    or_,
    select,
    update,
)

from sagehen.services.s3.storage.records import (
    Attributes,
    Blob,
    Bucket,
    BucketSettings,
    Checksum,
    ChecksumKind,
    ObjectInfo,
    Upload,
)
from sagehen.services.s3.tables import BLOBS, BUCKETS, OBJECTS, STATE_IDENTITY, UPLOADS
from sagehen.state.rows import Upsert, inserts, upsert, upsert_for

__all__ = [
    "delete_blobs",
    "delete_bucket",
    "delete_object",
    "delete_upload",
    "find_bucket",
    "find_object",
    "find_upload",
    "holds_object",
    "in_files",
    "insert_blobs",
    "insert_bucket",
    "insert_upload",
    "known_blobs",
    "list_blobs",
    "list_buckets",
    "list_objects",
    "list_uploads",
    "note_deletions",
    "open_object",
    "put_blob",
    "put_object",
    "put_objects",
    "read_objects",
    "set_attributes",
    "set_bucket_settings",
    "state_id",
    "uploads_of",
]

_INFO_COLUMNS = [OBJECTS.c[name] for name in ObjectInfo.__struct_fields__]
_THE_OBJECT = (OBJECTS.c.bucket == bindparam("of_bucket"), OBJECTS.c.key == bindparam("of_key"))
_FIND_OBJECT = select(*_INFO_COLUMNS).where(*_THE_OBJECT)
_OPEN_OBJECT = select(OBJECTS).where(*_THE_OBJECT)
_IN_FILES = select(OBJECTS.c.key).where(
    OBJECTS.c.bucket == bindparam("of_bucket"),
    OBJECTS.c.key.in_(bindparam("of_keys", expanding=True)),
    OBJECTS.c.data.is_(None),
)
_READ_OBJECTS = select(OBJECTS.c.key, OBJECTS.c.data, OBJECTS.c.attributes).where(
    OBJECTS.c.bucket == bindparam("of_bucket"),
    OBJECTS.c.key.in_(bindparam("of_keys", expanding=True)),
    OBJECTS.c.data.is_not(None),
)
_NOTE_DELETION = (
    update(UPLOADS)
    .where(UPLOADS.c.bucket == bindparam("of_bucket"), UPLOADS.c.key == bindparam("of_key"))
    .values(key_deleted=True)
)
_FIND_BUCKET = select(BUCKETS).where(BUCKETS.c.name == bindparam("of_name"))
_LOCK_BUCKET = _FIND_BUCKET.with_for_update()


def find_bucket(connection: Connection, name: str, *, lock: bool = False) -> Bucket | None:
    """With `lock`, locks the row until the transaction ends."""
    row = connection.execute(_LOCK_BUCKET if lock else _FIND_BUCKET, {"of_name": name}).first()
    return _read_bucket(row) if row else None


def list_buckets(connection: Connection) -> list[Bucket]:
    rows = connection.execute(select(BUCKETS).order_by(BUCKETS.c.name))
    return [_read_bucket(row) for row in rows]


def insert_bucket(connection: Connection, bucket: Bucket) -> bool:
    """Returns False if the name is taken."""
    values = {**msgspec.structs.asdict(bucket), "settings": _json(bucket.settings)}
    statement = upsert(connection, BUCKETS).values(**values)
    return inserts(connection, statement.on_conflict_do_nothing())


def set_bucket_settings(connection: Connection, name: str, settings: BucketSettings) -> None:
    where = BUCKETS.c.name == name
    connection.execute(update(BUCKETS).where(where).values(settings=_json(settings)))


def delete_bucket(connection: Connection, name: str) -> None:
    """The bucket must be empty."""
    connection.execute(delete(BUCKETS).where(BUCKETS.c.name == name))


def holds_object(connection: Connection, bucket: str) -> bool:
    statement = select(OBJECTS.c.bucket).where(OBJECTS.c.bucket == bucket).limit(1)
    return connection.execute(statement).first() is not None


def find_object(connection: Connection, bucket: str, key: str) -> ObjectInfo | None:
    row = connection.execute(_FIND_OBJECT, _object_key(bucket, key)).first()
    return _read_object(row._asdict()) if row else None


def open_object(
    connection: Connection, bucket: str, key: str
) -> tuple[ObjectInfo, bytes | None] | None:
    """Returns None for bytes that are not in the row."""
    row = connection.execute(_OPEN_OBJECT, _object_key(bucket, key)).first()
    if row is None:
        return None
    values = row._asdict()
    data = values.pop("data")
    return _read_object(values), data


def put_object(connection: Connection, info: ObjectInfo, data: bytes | None = None) -> None:
    """Upserts; `data` is None where blobs hold the bytes."""
    connection.execute(_put_object(connection.dialect.name), _object_row(info, data))


def put_objects(connection: Connection, objects: Sequence[tuple[ObjectInfo, bytes]]) -> None:
    """Upserts; the last of equal keys wins."""
    # Sorted to prevent deadlocks.
    ordered = sorted(objects, key=lambda item: (item[0].bucket, item[0].key))
    values = [_object_row(info, data) for info, data in ordered]
    if values:
        connection.execute(_put_object(connection.dialect.name), values)


def in_files(connection: Connection, keys: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Returns the keys whose objects have their bytes in files."""
    return {
        (parameters["of_bucket"], key.decode())
        for parameters in _by_bucket(keys)
        for key in connection.scalars(_IN_FILES, parameters)
    }


def read_objects(
    connection: Connection, keys: Sequence[tuple[str, str]]
) -> list[tuple[str, str, bytes, Attributes]]:
    """Returns only objects with their bytes in rows."""
    return [
        (
            parameters["of_bucket"],
            key.decode(),
            data,
            msgspec.json.decode(attributes, type=Attributes),
        )
        for parameters in _by_bucket(keys)
        for key, data, attributes in connection.execute(_READ_OBJECTS, parameters)
    ]


def set_attributes(connection: Connection, info: ObjectInfo, attributes: Attributes) -> None:
    where = _object(info.bucket, info.key)
    connection.execute(update(OBJECTS).where(*where).values(attributes=_json(attributes)))


def delete_object(connection: Connection, bucket: str, key: str) -> None:
    connection.execute(delete(OBJECTS).where(*_object(bucket, key)))


def list_objects(
    connection: Connection, bucket: str, prefix: bytes, start: bytes, inclusive: bool, limit: int
) -> list[ObjectInfo]:
    where = [OBJECTS.c.bucket == bucket, *_key_range(OBJECTS.c.key, prefix, start, inclusive)]
    statement = select(*_INFO_COLUMNS).where(*where).order_by(OBJECTS.c.key).limit(limit)
    return [_read_object(row._asdict()) for row in connection.execute(statement)]


def insert_upload(connection: Connection, upload: Upload) -> None:
    values = {
        **msgspec.structs.asdict(upload),
        "key": upload.key.encode(),
        "attributes": _json(upload.attributes),
        "kind": upload.kind.value,
    }
    connection.execute(insert(UPLOADS).values(**values))


def find_upload(connection: Connection, upload_id: str, *, lock: bool = False) -> Upload | None:
    """With `lock`, locks the row until the transaction ends."""
    if "\0" in upload_id:
        return None  # PostgreSQL rejects text with a NUL.
    statement = select(UPLOADS).where(UPLOADS.c.upload_id == upload_id)
    row = connection.execute(statement.with_for_update() if lock else statement).first()
    return _read_upload(row) if row else None


def delete_upload(connection: Connection, upload_id: str) -> None:
    """Leaves the upload's blobs."""
    connection.execute(delete(UPLOADS).where(UPLOADS.c.upload_id == upload_id))


def note_deletions(connection: Connection, bucket: str, keys: Iterable[str]) -> None:
    """Tells the uploads of these keys that an object was deleted."""
    connection.execute(_NOTE_DELETION, [_object_key(bucket, key) for key in keys])


def list_uploads(
    connection: Connection, bucket: str, prefix: str, after: tuple[str, str], limit: int
) -> list[Upload]:
    """An empty id in `after` skips all uploads of that key."""
    key, upload_id = after[0].encode(), after[1]
    behind: ColumnElement[bool] = UPLOADS.c.key > key
    if upload_id:
        # PostgreSQL rejects text with a NUL, which no id has: what is before it sorts the same.
        sortable = upload_id.partition("\0")[0]
        behind = or_(behind, (UPLOADS.c.key == key) & (UPLOADS.c.upload_id > sortable))
    where = [UPLOADS.c.bucket == bucket, *_key_range(UPLOADS.c.key, prefix.encode(), b"", True)]
    statement = select(UPLOADS).where(*where, behind)
    statement = statement.order_by(UPLOADS.c.key, UPLOADS.c.upload_id).limit(limit)
    return [_read_upload(row) for row in connection.execute(statement)]


def uploads_that_begin(connection: Connection, beginning: str) -> list[Upload]:
    """Returns uploads by the beginning of their ids; reads all, which are few."""
    statement = select(UPLOADS).where(UPLOADS.c.upload_id.startswith(beginning, autoescape=True))
    return [_read_upload(row) for row in connection.execute(statement)]


def uploads_of(connection: Connection, bucket: str) -> list[str]:
    statement = select(UPLOADS.c.upload_id).where(UPLOADS.c.bucket == bucket)
    return list(connection.execute(statement).scalars())


def put_blob(connection: Connection, blob: Blob) -> str | None:
    """Upserts; returns the replaced blob's id."""
    where = (BLOBS.c.owner_id == blob.owner_id, BLOBS.c.number == blob.number)
    old = connection.execute(select(BLOBS.c.blob_id).where(*where)).scalar()
    values = msgspec.structs.asdict(blob)
    statement = upsert(connection, BLOBS).values(**values)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=[BLOBS.c.owner_id, BLOBS.c.number], set_=values
        )
    )
    return old


def insert_blobs(connection: Connection, blobs: Sequence[Blob]) -> None:
    if blobs:
        connection.execute(insert(BLOBS), [msgspec.structs.asdict(blob) for blob in blobs])


def list_blobs(
    connection: Connection, owner_id: str, after: int = 0, limit: int | None = None
) -> list[Blob]:
    """Returns blobs by number."""
    columns = [BLOBS.c[name] for name in Blob.__struct_fields__]
    where = (BLOBS.c.owner_id == owner_id, BLOBS.c.number > after)
    statement = select(*columns).where(*where).order_by(BLOBS.c.number).limit(limit)
    return [Blob(**row._mapping) for row in connection.execute(statement)]


def delete_blobs(connection: Connection, owner_id: str, keep: Iterable[int] = ()) -> list[str]:
    """Returns the deleted ids."""
    kept_numbers = set(keep)
    rows = connection.execute(
        select(BLOBS.c.number, BLOBS.c.blob_id).where(BLOBS.c.owner_id == owner_id)
    )
    gone = {number: blob_id for number, blob_id in rows if number not in kept_numbers}
    if gone and not kept_numbers:
        connection.execute(delete(BLOBS).where(BLOBS.c.owner_id == owner_id))
    for number in gone if kept_numbers else ():
        where = (BLOBS.c.owner_id == owner_id, BLOBS.c.number == number)
        connection.execute(delete(BLOBS).where(*where))
    return list(gone.values())


def known_blobs(connection: Connection, blob_ids: list[str]) -> set[str]:
    """Returns the ids that have a row."""
    statement = select(BLOBS.c.blob_id).where(BLOBS.c.blob_id.in_(blob_ids))
    return set(connection.execute(statement).scalars())


def state_id(connection: Connection) -> str | None:
    """Returns the id shared with the object files; None before the first start."""
    identity: str | None = connection.scalar(select(STATE_IDENTITY.c.state_id))
    return identity


def _object(bucket: str, key: str) -> tuple[ColumnElement[bool], ...]:
    return OBJECTS.c.bucket == bucket, OBJECTS.c.key == key.encode()


def _key_range(
    column: Column[Any], prefix: bytes, start: bytes, inclusive: bool
) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = []
    if start > prefix or (start == prefix and not inclusive):
        where.append(column >= start if inclusive else column > start)
    elif prefix:
        where.append(column >= prefix)
    if prefix:
        # UTF-8 has no byte 0xFF, so a last byte can always be raised.
        where.append(column < prefix[:-1] + bytes([prefix[-1] + 1]))
    return where


def _by_bucket(keys: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    of_bucket: dict[str, list[bytes]] = {}
    # PostgreSQL rejects text with a NUL, so no bucket name holds one.
    for bucket, key in dict.fromkeys(pair for pair in keys if "\0" not in pair[0]):
        of_bucket.setdefault(bucket, []).append(key.encode())
    return [{"of_bucket": bucket, "of_keys": keys} for bucket, keys in sorted(of_bucket.items())]


def _object_row(info: ObjectInfo, data: bytes | None) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(info),
        "key": info.key.encode(),
        "attributes": _json(info.attributes),
        "checksum": _json(info.checksum) if info.checksum else None,
        "data": data,
    }


def _object_key(bucket: str, key: str) -> dict[str, Any]:
    return {"of_bucket": bucket, "of_key": key.encode()}


@functools.cache
def _put_object(dialect: str) -> Upsert:
    # Built once, because building the statement takes longer than running it.
    names = [column.name for column in OBJECTS.columns]
    statement = upsert_for(dialect, OBJECTS).values({name: bindparam(name) for name in names})
    return statement.on_conflict_do_update(
        index_elements=[OBJECTS.c.bucket, OBJECTS.c.key],
        set_={name: statement.excluded[name] for name in names},
    )


def _read_bucket(row: Row[Any]) -> Bucket:
    if row.settings is None:
        return Bucket(row.name, row.created_at)
    settings = msgspec.json.decode(row.settings, type=BucketSettings)
    return Bucket(row.name, row.created_at, settings)


def _read_object(values: dict[str, Any]) -> ObjectInfo:
    values["key"] = values["key"].decode()
    values["attributes"] = msgspec.json.decode(values["attributes"], type=Attributes)
    if values["checksum"]:
        values["checksum"] = msgspec.json.decode(values["checksum"], type=Checksum)
    return ObjectInfo(**values)


def _read_upload(row: Row[Any]) -> Upload:
    values = dict(row._mapping)
    values["key"] = values["key"].decode()
    values["attributes"] = msgspec.json.decode(values["attributes"], type=Attributes)
    values["kind"] = ChecksumKind(values["kind"])
    return Upload(**values)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
