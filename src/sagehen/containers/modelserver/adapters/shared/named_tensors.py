"""Rows as named tensors, for ONNX and TensorFlow models.

Requests have rows (`instances`: values, or objects of values) or columns (`inputs`: a tensor, or an
object of tensors).
"""

import base64
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = [
    "COLUMNS",
    "LISTS",
    "ROWS",
    "NamedRows",
    "Tensor",
    "as_tensor",
    "by_column",
    "by_row",
    "concatenate",
    "content",
    "kind",
    "split",
]

LISTS, ROWS, COLUMNS = "", "predictions", "outputs"
"""Forms of an answer: a bare list, or an object with this key."""


class Tensor(NamedTuple):
    """One input of a model."""

    name: str
    dtype: Any
    """numpy's type; `object` for text."""
    shape: tuple[int | None, ...] | None
    """The first axis is the rows. None means unknown, for an axis or the whole shape."""


@dataclass(slots=True)
class NamedRows:
    """Holds tensors of `count` rows by input name."""

    count: int
    arrays: dict[str, Any]
    form: str = LISTS


def by_row(rows: Any, inputs: Sequence[Tensor], form: str, lone: bool = False) -> NamedRows:
    """Raises ValueError. `lone` allows one bare row."""
    if not isinstance(rows, list) or not rows:
        raise ValueError("it has no list of rows")
    if isinstance(rows[0], dict) and "b64" not in rows[0]:
        names = {tensor.name for tensor in inputs}
        if any(not isinstance(row, dict) or row.keys() != names for row in rows):
            raise ValueError(f"each row must be an object of {_names(inputs)}")
        return by_column({name: [row[name] for row in rows] for name in names}, inputs, form)
    if len(inputs) > 1:
        raise ValueError(f"each row must be an object of {_names(inputs)}")
    return by_column(rows, inputs, form, lone)


def by_column(columns: Any, inputs: Sequence[Tensor], form: str, lone: bool = False) -> NamedRows:
    """Raises ValueError."""
    if not isinstance(columns, dict) or "b64" in columns:
        if len(inputs) != 1:
            raise ValueError(f"the model takes an object of {_names(inputs)}")
        columns = {inputs[0].name: columns}
    if columns.keys() != {tensor.name for tensor in inputs}:
        names = ", ".join(map(str, columns)) or "nothing"
        raise ValueError(f"the model takes {_names(inputs)}, and was given {names}")
    arrays = {tensor.name: as_tensor(columns[tensor.name], tensor, lone) for tensor in inputs}
    counts = {len(array) for array in arrays.values() if array.ndim}
    if len(counts) > 1:
        raise ValueError(f"the inputs have different numbers of rows: {sorted(counts)}")
    return NamedRows(max(counts, default=1), arrays, form)


def _names(inputs: Sequence[Tensor]) -> str:
    return ", ".join(tensor.name for tensor in inputs)


def as_tensor(value: Any, tensor: Tensor, lone: bool = False) -> Any:
    """Raises ValueError if the value does not fit.

    `lone` makes one row a list, and flattens a column of numbers.
    """
    try:
        array = _typed(value, tensor)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"input {tensor.name!r}: {error}") from error
    if tensor.shape is None:
        return array
    if lone and array.ndim == len(tensor.shape) - 1:
        array = array[None]
    if lone and array.ndim == len(tensor.shape) + 1 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim != len(tensor.shape) or any(
        expected is not None and expected != actual
        for expected, actual in zip(tensor.shape[1:], array.shape[1:], strict=True)
    ):
        raise ValueError(
            f"input {tensor.name!r} has the shape {_shown(array.shape)}, "
            f"and the model takes {_shown((None, *tensor.shape[1:]))}"
        )
    return array


def _shown(shape: Sequence[int | None]) -> str:
    sizes = ("?" if size is None else str(size) for size in shape[1:])
    return f"({', '.join(['rows'[: 4 * len(shape)], *sizes])})"


def _typed(value: Any, tensor: Tensor) -> Any:
    import numpy

    if tensor.dtype == object:
        return _text(value)
    array = numpy.array(value)
    if array.dtype.kind not in "biufO" or (array.dtype.kind == "O" and tensor.dtype.kind != "f"):
        raise ValueError(f"it is not all numbers of {tensor.dtype.name}")
    if array.dtype == tensor.dtype:
        return array
    with numpy.errstate(invalid="ignore", over="ignore"):
        typed = array.astype(tensor.dtype)
    if typed.dtype.kind in "biu" and not numpy.array_equal(typed, array):
        raise ValueError(f"it is not all numbers of {tensor.dtype.name}")
    return typed


def _text(value: Any) -> Any:
    import numpy

    array = numpy.array(_unwrapped(value), dtype=object)
    if any(not isinstance(item, str | bytes) for item in array.flat):
        raise ValueError("it is not all text")
    return array


def _unwrapped(value: Any) -> Any:
    """Decodes `{"b64": …}` to bytes."""
    if isinstance(value, list):
        return [_unwrapped(item) for item in value]
    if isinstance(value, dict) and value.keys() == {"b64"}:
        return base64.b64decode(value["b64"], validate=True)
    return value


def kind(rows: NamedRows) -> Hashable:
    """Returns equal keys for rows that can share a call."""
    return tuple(array.shape[1:] for array in rows.arrays.values())


def concatenate(batch: Sequence[NamedRows]) -> dict[str, Any]:
    import numpy

    if len(batch) == 1:
        return batch[0].arrays
    return {
        name: numpy.concatenate([rows.arrays[name] for rows in batch]) for name in batch[0].arrays
    }


def split(outputs: Mapping[str, Any], batch: Sequence[NamedRows]) -> list[dict[str, Any]] | None:
    """Returns None if an output lacks one entry per row."""
    if len(batch) == 1:
        return [dict(outputs)]
    total = sum(rows.count for rows in batch)
    if any(not by_rows(output, total) for output in outputs.values()):
        return None
    parts, at = [], 0
    for rows in batch:
        parts.append({name: output[at : at + rows.count] for name, output in outputs.items()})
        at += rows.count
    return parts


def by_rows(output: Any, count: int) -> bool:
    return getattr(output, "ndim", 1) > 0 and len(output) == count


def content(outputs: Mapping[str, Any], form: str) -> Any:
    plain = {name: _plain(output) for name, output in outputs.items()}
    lone = next(iter(plain.values())) if len(plain) == 1 else None
    if form == COLUMNS:
        return {form: plain if lone is None else lone}
    rows = lone if len(plain) == 1 else _in_rows(plain)
    return {form: rows} if form else rows


def _plain(output: Any) -> Any:
    return output.tolist() if hasattr(output, "tolist") else output


def _in_rows(plain: dict[str, Any]) -> Any:
    """Returns an object per row, or whole outputs if some lack one entry per row."""
    lengths = {len(output) if isinstance(output, list) else -1 for output in plain.values()}
    if len(lengths) > 1 or -1 in lengths:
        return plain
    return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
