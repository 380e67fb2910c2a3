"""Batches rows as arrays, for adapters that predict tables of numbers."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

from sagehen.containers.modelserver.adapters.shared import codecs
from sagehen.containers.modelserver.adapters.shared.codecs import media_type
from sagehen.containers.modelserver.adapters.shared.table import parse_csv
from sagehen.containers.modelserver.contract import ModelAnswer, Refusal
from sagehen.containers.modelserver.environment import Environment

__all__ = [
    "ArrayModel",
    "ArrayRows",
    "decode_body",
    "encode_accepted_type",
    "evaluation_error",
    "rows_of",
    "run_in_groups",
    "split_rows",
]

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class ArrayRows:
    """Holds rows of shape (count, features)."""

    count: int
    values: Any


class ArrayModel:
    """Batches requests to a function from (rows, features) to (rows, …), which raises ValueError
    for bad rows.

    JSON and CSV become `dtype`; NPY and NPZ keep their type.
    """

    def __init__(
        self, predict: Callable[[Any], Any], environment: Environment, dtype: str = "float32"
    ) -> None:
        self._function = predict
        self._dtype = dtype
        self._default_accept = environment.default_accept or codecs.JSON

    def decode(self, body: bytes, content_type: str) -> ArrayRows:
        values = decode_body(
            body, content_type, lambda data, kind: rows_of(data, kind, self._dtype), "numbers"
        )
        return ArrayRows(values.shape[0], values)  # sparse matrices have no len

    def predict(self, batch: Sequence[ArrayRows]) -> list[Any]:
        return run_in_groups(batch, _kind, self._predict_together)

    def _predict_together(self, batch: Sequence[ArrayRows]) -> list[Any]:
        import numpy

        if len(batch) == 1:
            return [self._predictions(batch[0].values)]
        combined = self._predictions(numpy.concatenate([rows.values for rows in batch]))
        return split_rows(combined, [rows.count for rows in batch])

    def _predictions(self, values: Any) -> Any:
        try:
            return self._function(values)
        except ValueError as error:
            raise evaluation_error(error) from error

    def encode(self, prediction: Any, accept: str) -> ModelAnswer:
        return encode_accepted_type(prediction, accept, self._default_accept, codecs.encode)

    def close(self) -> None:
        self._function = _closed


def _closed(_values: Any) -> Any:
    raise RuntimeError("the model was unloaded")


def _kind(rows: ArrayRows) -> Hashable:
    """Separates rows of different width or type, and sparse ones."""
    if not hasattr(rows.values, "__array__"):
        return id(rows)
    return rows.values.dtype, rows.values.shape[1:]


def run_in_groups(
    batch: Sequence[T], key: Callable[[T], Hashable], run: Callable[[Sequence[T]], Sequence[R]]
) -> list[R]:
    """Runs members with equal keys together."""
    if len(batch) == 1:
        return list(run(batch))
    groups: dict[Hashable, list[int]] = {}
    for index, member in enumerate(batch):
        groups.setdefault(key(member), []).append(index)
    results: dict[int, R] = {}
    for indices in groups.values():
        results.update(zip(indices, run([batch[index] for index in indices]), strict=True))
    return [results[index] for index in range(len(batch))]


def split_rows(values: Any, counts: Sequence[int]) -> list[Any]:
    """Splits the rows of a combined prediction: `counts` are those of its requests, in order."""
    ends = [*accumulate(counts)]
    return [values[end - count : end] for end, count in zip(ends, counts, strict=True)]


def decode_body(
    body: bytes, content_type: str, decode: Callable[[bytes, str], T], expected: str
) -> T:
    """Raises Refusal: 415 for UnsupportedFormat or no type, else 400."""
    kind = media_type(content_type)
    if not kind:
        raise Refusal(415, "The request has no Content-Type, which says how to read its body.")
    try:
        if not body.strip():
            raise ValueError("it is empty")
        return decode(body, kind)
    except codecs.UnsupportedFormat as error:
        raise Refusal(415, str(error)) from error
    except MemoryError:
        raise
    except Exception as error:
        raise Refusal(400, f"The body is not {kind} of {expected}: {error}") from error


def evaluation_error(error: Exception | str) -> Refusal:
    return Refusal(400, f"Unable to evaluate payload provided: {error}")


def encode_accepted_type(
    prediction: T,
    accept: str,
    default: str,
    encode: Callable[[T, str], str | bytes],
    supported: Sequence[str] = (codecs.JSON, codecs.CSV, codecs.NPY),
) -> ModelAnswer:
    """Uses the first accepted type. Raises Refusal 406."""
    for part in (accept or "*/*").split(","):
        kind = media_type(part)
        kind = default if kind in ("*/*", "") else kind
        try:
            body = encode(prediction, kind)
        except codecs.UnsupportedFormat:
            continue
        return ModelAnswer(200, body.encode() if isinstance(body, str) else body, kind)
    raise Refusal(
        406,
        f"Accept type {accept} is not supported. "
        f"Please use supported accept types: {', '.join(supported)}.",
    )


def rows_of(data: Any, content_type: str, dtype: str) -> Any:
    """Returns a two-dimensional array; a flat list is one row.

    Raises UnsupportedFormat, or ValueError for malformed data or no rows.
    """
    import numpy

    if content_type == codecs.CSV:
        table = parse_csv(data.encode() if isinstance(data, str) else data, "d")
        values = numpy.asarray(table.cells).reshape(table.count, table.columns)
    else:
        values = codecs.decode(data, content_type)
        codecs.reject_object(values)
    if 0 in values.shape:  # not size: 0 for a sparse matrix of zeros
        raise ValueError("it has no rows")
    if values.ndim < 2:
        values = values.reshape((1, -1))
    return values.astype(dtype) if content_type in codecs.TEXT_TYPES else values
