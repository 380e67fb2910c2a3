"""Rows of CSV as they are written: fields keep the quotes that they have."""

from collections.abc import Callable, Sequence
from operator import itemgetter

from sagehen.services.sagemaker.transform.data_processing.json_path import (
    PartMissing,
    Path,
    PathSyntaxError,
    Positions,
)
from sagehen.services.sagemaker.transform.records.record_ends import RecordEnds

__all__ = ["BareQuote", "column_selector", "split_fields", "split_rows"]

_Selector = Callable[[list[bytes]], list[bytes]]
_Parts = Sequence[int | slice]


class BareQuote(Exception):
    """A row has a quote inside a field without quotes, or one that is not closed."""

    def __init__(self) -> None:
        super().__init__('bare " in non quoted field')


def split_rows(text: bytes, *, quoted_newlines: bool) -> list[bytes]:
    """A newline at the end of the text begins no row."""
    if quoted_newlines and b'"' in text:
        rows, begin = [], 0
        for end in RecordEnds(quotes=True).find(text).all.tolist():
            rows.append(text[begin:end])
            begin = end + 1
        rows.append(text[begin:])
    else:
        rows = text.split(b"\n")
    if not rows[-1]:
        rows.pop()
    if b"\r\n" in text:
        rows = [row[:-1] if row.endswith(b"\r") else row for row in rows]
    return rows


def split_fields(row: bytes) -> list[bytes]:
    """Returns the fields with their quotes. Raises BareQuote."""
    if b'"' not in row:
        return row.split(b",")
    before, *segments = row.split(b'"')
    fields = before.split(b",")
    if len(segments) % 2 or fields[-1]:
        raise BareQuote
    # By turns inside and outside quotes. Nothing between two of them: a doubled quote.
    for at in range(0, len(segments), 2):
        fields[-1] = b'%b"%b"' % (fields[-1], segments[at])
        after = segments[at + 1]
        if after:
            rest, *others = after.split(b",")
            fields += others
            if rest or (at + 2 < len(segments) and fields[-1]):
                raise BareQuote
    return fields


def column_selector(path: Path) -> _Selector:
    """Returns a function from rows to their columns that the path selects.

    Raises PathSyntaxError; the function raises BareQuote and PartMissing.
    """
    match path.steps:
        case ():
            return lambda rows: rows
        case (Positions(parts),):
            return _fast_selector(parts, _selector(parts))
    raise PathSyntaxError("For CSV, only indexes of columns are supported, as in $[0] or $[1:].")


def _selector(parts: _Parts) -> _Selector:
    indexes = [part for part in parts if isinstance(part, int)]
    if len(indexes) > 1 and len(indexes) == len(parts):
        pick = itemgetter(*indexes)

        def picked(rows: list[bytes]) -> list[bytes]:
            try:
                return [b",".join(pick(split_fields(row))) for row in rows]
            except IndexError:
                return [_columns(split_fields(row), parts) for row in rows]

        return picked
    return lambda rows: [_columns(split_fields(row), parts) for row in rows]


def _columns(fields: list[bytes], parts: _Parts) -> bytes:
    chosen: list[bytes] = []
    for part in parts:
        if isinstance(part, slice):
            chosen += fields[part]
        elif -len(fields) <= part < len(fields):
            chosen.append(fields[part])
        else:
            raise PartMissing(f"it has {len(fields)} columns, and none at [{part}]")
    if not chosen:
        raise PartMissing(f"none of its {len(fields)} columns is selected")
    return b",".join(chosen)


def _fast_selector(parts: _Parts, select: _Selector) -> _Selector:
    """Cuts off the first or last columns without a look at the others, where no row has quotes."""
    match parts:
        case [slice(start=int(first), stop=None)] if first > 0:

            def cut(rows: list[bytes]) -> list[bytes]:
                return [row.split(b",", first)[first] for row in rows]

        case [slice(start=None | 0, stop=int(end))] if end < 0:

            def cut(rows: list[bytes]) -> list[bytes]:
                # Counted from the end: raises IndexError for rows with too few columns.
                return [row.rsplit(b",", -end)[end - 1] for row in rows]

        case _:
            return select

    def selected(rows: list[bytes]) -> list[bytes]:
        if b'"' in b"".join(rows):
            return select(rows)
        try:
            return cut(rows)
        except IndexError:
            return select(rows)

    return selected
