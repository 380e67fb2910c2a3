"""Parquet as text: rows of CSV without a header, or lines of JSON.

A row group is read column by column and decoded a few thousand rows at a time, so the memory is
that of one row group's columns as they are stored. pyarrow is imported when it is needed.
"""

import io
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Protocol

import msgspec

from sagehen.base.errors import SagehenError
from sagehen.base.extras import missing_library
from sagehen.services.sagemaker.transform.records.record_ends import RecordEnds

__all__ = ["ParquetError", "RangeSource", "read_parquet"]

_ROWS = 8192
"""decoded at once"""
_JSON = msgspec.json.Encoder(decimal_format="number")


class ParquetError(SagehenError):
    """An object is no Parquet, is damaged, or has columns that the text cannot have."""


class RangeSource(Protocol):
    size: int

    def read_range(self, offset: int, length: int) -> bytes:
        """Returns exactly so many bytes; the range lies within the object."""
        ...


def read_parquet(source: RangeSource, content_type: str) -> Iterator[bytes]:
    """Yields the rows as text/csv or application/jsonlines, in pieces that end with newlines.

    A null is an empty field, or null. Raises ParquetError, Unavailable without pyarrow, and
    what the source raises.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise missing_library("pyarrow", "parquet") from error
    failed: list[Exception] = []
    try:
        with pq.ParquetFile(_RangeFile(source, failed), pre_buffer=False) as file:
            write = _writer(content_type, file.schema_arrow)
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(_ROWS, row_groups=[group], use_threads=False):
                    yield write(_plain(batch))
    except (pa.ArrowException, OSError) as error:
        # Arrow makes its own errors of those that the source raises.
        if failed:
            raise failed[0] from None
        raise ParquetError(f"The object cannot be read as Parquet: {error}") from error


class _RangeFile(io.RawIOBase):
    """The source as a file, which Arrow reads from its end."""

    def __init__(self, source: RangeSource, failed: list[Exception]) -> None:
        super().__init__()
        self._source = source
        self._failed = failed
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(self._source.size - self._at, 0)
        size = left if size < 0 else min(size, left)
        if not size:
            return b""
        try:
            data = self._source.read_range(self._at, size)
        except Exception as error:
            self._failed.append(error)
            raise
        self._at += size
        return data


def _plain(batch: Any) -> Any:
    """Makes of the columns what both texts can have: no dictionaries, and times without pandas."""
    import pyarrow as pa

    types = pa.types
    columns = []
    for column in batch.columns:
        kind = column.type
        if types.is_dictionary(kind):
            column = column.dictionary_decode()
        elif types.is_timestamp(kind) and kind.unit == "ns":
            column = column.cast(pa.timestamp("us", kind.tz), safe=False)
        elif types.is_duration(kind) and kind.unit == "ns":
            column = column.cast(pa.duration("us"), safe=False)
        elif types.is_time64(kind) and kind.unit == "ns":
            column = column.cast(pa.time64("us"), safe=False)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _writer(content_type: str, schema: Any) -> Callable[[Any], bytes]:
    return _csv_writer(schema) if content_type == "text/csv" else _json_writer(schema)


def _csv_writer(schema: Any) -> Callable[[Any], bytes]:
    import pyarrow as pa
    from pyarrow import csv

    for field in schema:
        if pa.types.is_nested(field.type):
            raise ParquetError(
                f'The column "{field.name}" holds {field.type}, which CSV cannot have. Set '
                "SAGEHEN_TRANSFORM_PARQUET_AS to application/jsonlines in the job's Environment."
            )
    options = csv.WriteOptions(include_header=False, quoting_style="needed")

    def write(batch: Any) -> bytes:
        sink = io.BytesIO()
        csv.write_csv(batch, sink, options)
        text = sink.getvalue()
        return _quote_empty_lines(text) if batch.num_columns == 1 else text

    return write


def _quote_empty_lines(text: bytes) -> bytes:
    """The null of an only column is an empty line, which would be no record."""
    empty = RecordEnds(quotes=True).find(text).empty.tolist()
    return b'""'.join(text[begin:end] for begin, end in pairwise([0, *empty, len(text)]))


def _json_writer(schema: Any) -> Callable[[Any], bytes]:
    if len(set(schema.names)) < len(schema.names):
        raise ParquetError(
            "Several columns have one name, which JSON cannot have. Set "
            "SAGEHEN_TRANSFORM_PARQUET_AS to text/csv in the job's Environment."
        )

    def write(batch: Any) -> bytes:
        try:
            return _JSON.encode_lines(batch.to_pylist())
        except (TypeError, ValueError) as error:
            raise ParquetError(f"The object has values that JSON cannot have: {error}") from error

    return write
