"""The tables of CloudWatch's metrics."""

from sqlalchemy import BigInteger, Column, Double, Index, Integer, LargeBinary, String, Table, Text

from sagehen.store.tables import METADATA

__all__ = ["SAMPLES", "SERIES"]

# SQLite numbers rows by itself only where they are of its own kind of integer.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")

SERIES = Table(
    "series",
    METADATA,
    Column("series_id", _NUMBER, primary_key=True, autoincrement=True),
    # Of all that makes it, for dimensions may be longer than an index takes.
    Column("digest", String(64), nullable=False, unique=True),
    # Of all but the unit: CloudWatch calls series that differ only in that one metric.
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
    # Of the sketch, where its values are not all the same; none where nobody knows how they lie.
    Column("buckets", LargeBinary),
    # So they lie by series, and a series is one run of pages.
    sqlite_with_rowid=False,
)
