"""Tables of metric series and their samples, by the minute and for some hours by ten seconds;
writes, merges and prunes them."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    RowMapping,
    String,
    Table,
    Text,
    bindparam,
    delete,
    func,
    select,
    update,
)

from sagehen.frame.statistics import Series, Statistics, of_set
from sagehen.state.rows import METADATA, upsert

__all__ = [
    "FINE_RETENTION_SECONDS",
    "FINE_SAMPLES",
    "MINUTES",
    "SAMPLES",
    "SERIES",
    "TENS",
    "Batch",
    "Resolution",
    "add",
    "count_samples",
    "count_series",
    "prune",
    "statistics_of",
]

# SQLite numbers rows only for its own integer type.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")

SERIES = Table(
    "series",
    METADATA,
    Column("series_id", _NUMBER, primary_key=True, autoincrement=True),
    # Digest of the whole key, as dimensions may be too long for an index.
    Column("digest", String(64), nullable=False, unique=True),
    # Digest without the unit: to CloudWatch, series that differ only in unit are one metric.
    Column("metric", String(64), nullable=False),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("dimensions", Text, nullable=False),
    Column("unit", String(32), nullable=False),
    Column("last_minute", Integer, nullable=False),
    Index(None, "metric"),
    Index(None, "namespace", "name"),
)
SAMPLES = Table(
    "samples",
    METADATA,
    Column("series_id", _NUMBER, primary_key=True, autoincrement=False),
    Column("minute", Integer, primary_key=True, autoincrement=False),
    Column("count", Double, nullable=False),
    Column("sum", Double, nullable=False),
    Column("minimum", Double, nullable=False),
    Column("maximum", Double, nullable=False),
    # Distribution, unless all values are equal or it is unknown.
    Column("buckets", LargeBinary),
    # Clusters rows by series.
    sqlite_with_rowid=False,
)
FINE_SAMPLES = Table(
    "fine_samples",
    METADATA,
    Column("series_id", _NUMBER, primary_key=True, autoincrement=False),
    # Ten seconds since the epoch.
    Column("slot", Integer, primary_key=True, autoincrement=False),
    Column("count", Double, nullable=False),
    Column("sum", Double, nullable=False),
    Column("minimum", Double, nullable=False),
    Column("maximum", Double, nullable=False),
    Column("buckets", LargeBinary),
    sqlite_with_rowid=False,
)

FINE_RETENTION_SECONDS = 3 * 3600
"""as in CloudWatch"""


class Resolution(NamedTuple):
    """Samples of one length."""

    seconds: int
    table: Table
    slot: Column[int]
    """the sample's start, counted in `seconds` since the epoch"""


MINUTES = Resolution(60, SAMPLES, SAMPLES.c.minute)
TENS = Resolution(10, FINE_SAMPLES, FINE_SAMPLES.c.slot)

Batch = Mapping[tuple[Series, int], Statistics]
"""by series and slot of the resolution"""

_CHUNK_SIZE = 500
"""values per statement, which databases limit"""
_VALUE_COLUMNS = ("count", "sum", "minimum", "maximum", "buckets")


def add(
    connection: Connection, batch: Batch, most_series: int, resolution: Resolution = MINUTES
) -> set[Series]:
    """Merges a batch into the store; returns new series dropped beyond `most_series`."""
    ids = _ids(connection, {series for series, _ in batch}, most_series)
    merged: dict[tuple[int, int], Statistics] = {}
    for (series, slot), statistics in batch.items():
        if series in ids:
            merged[ids[series], slot] = statistics.copy()
    for key, stored in _stored(connection, merged, resolution):
        merged[key].merge(stored)
    # A change of only a sum has no effect if its sample was never written.
    merged = {key: statistics for key, statistics in merged.items() if statistics.count}
    if merged:
        _write(connection, merged, resolution)
        _touch(connection, merged, resolution)
    return {series for series, _ in batch if series not in ids}


def count_series(connection: Connection) -> int:
    return connection.scalar(select(func.count()).select_from(SERIES)) or 0


def count_samples(connection: Connection) -> int:
    """Scans the whole table, so call rarely."""
    return connection.scalar(select(func.count()).select_from(SAMPLES)) or 0


def prune(
    connection: Connection, before_minute: int, before_fine: int, after: int, limit: int
) -> int | None:
    """Deletes old samples of the next series, and series with no newer ones.

    Args:
        before_fine: slot of TENS before which its samples are deleted.
        after: what the last call returned; 0 to begin.
        limit: number of series.

    Returns the next `after`, or None at the end.
    """
    statement = select(SERIES.c.series_id).where(SERIES.c.series_id > after)
    series_ids = connection.scalars(statement.order_by(SERIES.c.series_id).limit(limit)).all()
    if not series_ids:
        return None
    for resolution, before in ((MINUTES, before_minute), (TENS, before_fine)):
        connection.execute(
            delete(resolution.table).where(
                resolution.table.c.series_id == bindparam("of_series"), resolution.slot < before
            ),
            [{"of_series": number} for number in series_ids],
        )
    connection.execute(
        delete(SERIES).where(
            SERIES.c.series_id.in_(series_ids), SERIES.c.last_minute < before_minute
        )
    )
    return int(series_ids[-1])


def statistics_of(row: RowMapping | Mapping[str, Any]) -> Statistics:
    statistics = of_set(row["count"], row["sum"], row["minimum"], row["maximum"])
    statistics.sum = row["sum"]
    if row["buckets"] is not None:
        statistics.buckets = _unpacked(row["buckets"])
    return statistics


def _ids(connection: Connection, all_series: set[Series], most_series: int) -> dict[Series, int]:
    by_digest = {series.digest: series for series in all_series}
    ids = _find_ids(connection, by_digest)
    new = sorted(digest for digest, series in by_digest.items() if series not in ids)
    if new:
        allowed = max(0, most_series - count_series(connection))
        for digest in new[:allowed]:
            _insert(connection, digest, by_digest[digest])
        ids |= _find_ids(connection, {digest: by_digest[digest] for digest in new[:allowed]})
    return ids


def _find_ids(connection: Connection, by_digest: Mapping[str, Series]) -> dict[Series, int]:
    ids = {}
    for digests in _chunks(sorted(by_digest)):
        # Lock in one order to avoid deadlocks.
        statement = (
            select(SERIES.c.digest, SERIES.c.series_id)
            .where(SERIES.c.digest.in_(digests))
            .order_by(SERIES.c.digest)
            .with_for_update()
        )
        ids.update({by_digest[digest]: number for digest, number in connection.execute(statement)})
    return ids


def _insert(connection: Connection, digest: str, series: Series) -> None:
    statement = upsert(connection, SERIES).values(
        digest=digest,
        metric=series.metric,
        namespace=series.namespace,
        name=series.name,
        dimensions=msgspec.json.encode(series.dimensions).decode(),
        unit=series.unit,
        last_minute=0,
    )
    connection.execute(statement.on_conflict_do_nothing())


def _stored(
    connection: Connection, keys: Iterable[tuple[int, int]], resolution: Resolution
) -> Iterator[tuple[tuple[int, int], Statistics]]:
    by_slot: dict[int, list[int]] = {}
    by_series: dict[int, list[int]] = {}
    for number, slot in keys:
        by_slot.setdefault(slot, []).append(number)
        by_series.setdefault(number, []).append(slot)
    # Group by slot or by series, whichever needs fewer statements.
    series_id: Column[int] = resolution.table.c.series_id
    shared_column, other_column, groups = resolution.slot, series_id, by_slot
    if len(by_series) < len(by_slot):
        shared_column, other_column, groups = other_column, shared_column, by_series
    for shared, values in groups.items():
        for chunk in _chunks(values):
            where = (shared_column == shared, other_column.in_(chunk))
            statement = select(resolution.table).where(*where)
            for row in connection.execute(statement).mappings():
                yield (row["series_id"], row[resolution.slot.name]), statistics_of(row)


def _write(
    connection: Connection, merged: Mapping[tuple[int, int], Statistics], resolution: Resolution
) -> None:
    statement = upsert(connection, resolution.table)
    statement = statement.on_conflict_do_update(
        index_elements=[resolution.table.c.series_id, resolution.slot],
        set_={name: statement.excluded[name] for name in _VALUE_COLUMNS},
    )
    rows = [
        {
            "series_id": number,
            resolution.slot.name: slot,
            "count": statistics.count,
            "sum": statistics.sum,
            "minimum": statistics.minimum,
            "maximum": statistics.maximum,
            "buckets": _packed(statistics),
        }
        for (number, slot), statistics in merged.items()
    ]
    connection.execute(statement, rows)


def _touch(connection: Connection, keys: Iterable[tuple[int, int]], resolution: Resolution) -> None:
    latest: dict[int, int] = {}
    for number, slot in keys:
        minute = slot * resolution.seconds // 60
        latest[number] = max(minute, latest.get(number, 0))
    by_minute: dict[int, list[int]] = {}
    for number, minute in latest.items():
        by_minute.setdefault(minute, []).append(number)
    for minute, numbers in by_minute.items():
        for chunk in _chunks(numbers):
            connection.execute(
                update(SERIES)
                .where(SERIES.c.series_id.in_(chunk), SERIES.c.last_minute < minute)
                .values(last_minute=minute)
            )


def _packed(statistics: Statistics) -> bytes | None:
    """Delta-encodes, as there is one value a minute and neighbours differ little."""
    if statistics.buckets is None or statistics.minimum == statistics.maximum:
        return None
    pairs, last = [], 0
    for bucket, count in sorted(statistics.buckets.items()):
        # MessagePack has no larger integers.
        is_whole = count == int(count) and count < 2**63
        pairs += [bucket - last, int(count) if is_whole else count]
        last = bucket
    return zlib.compress(msgspec.msgpack.encode(pairs), 1)


def _unpacked(packed: bytes) -> dict[int, float]:
    numbers = msgspec.msgpack.decode(zlib.decompress(packed))
    buckets: dict[int, float] = {}
    bucket = 0
    for step, count in zip(numbers[::2], numbers[1::2], strict=True):
        bucket += step
        buckets[bucket] = count
    return buckets


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _CHUNK_SIZE):
        yield items[start : start + _CHUNK_SIZE]
