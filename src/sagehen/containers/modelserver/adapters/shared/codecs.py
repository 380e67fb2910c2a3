"""The inference toolkit's default codecs for JSON, CSV, NPY and NPZ."""

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

__all__ = [
    "CSV",
    "JSON",
    "NPY",
    "NPZ",
    "TEXT_TYPES",
    "UnsupportedFormat",
    "accepted_type",
    "decode",
    "encode",
    "json_text",
    "media_type",
    "reject_object",
]


def media_type(header: str) -> str:
    """Drops parameters: `text/csv; label_size=1` becomes `text/csv`."""
    return header.partition(";")[0].strip().lower()


def accepted_type(accept: str, default: str) -> str:
    """Returns `default` for a request that accepts everything."""
    return default if accept in ("", "*/*") else accept


PIECE_VALUES = 10_000
"""Values per call of `json`, some ten milliseconds, in which the server cannot answer `/ping`."""


def json_text(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Like `json.dumps(value, default=default)`, but lets other threads run."""
    if _size(value) <= PIECE_VALUES:
        return json.dumps(value, default=default)
    return "".join(_pieces(value, default))


def _pieces(value: Any, default: Callable[[Any], Any] | None) -> Iterator[str]:
    size = _size(value)
    if size <= PIECE_VALUES:
        yield json.dumps(value, default=default)
    elif isinstance(value, dict):
        for at, (key, item) in enumerate(value.items()):
            yield ", " if at else "{"
            yield json.dumps({key: None})[1 : -len("null}")]
            yield from _pieces(item, default)
        yield "}"
    else:
        step = len(value) * PIECE_VALUES // size
        for at in range(0, len(value), max(step, 1)):
            yield ", " if at else "["
            if step > 1:
                yield json.dumps(value[at : at + step], default=default)[1:-1]
            else:
                yield from _pieces(value[at], default)
        yield "]"


def _size(value: Any) -> int:
    """Estimates the number of values by a list's first item."""
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return len(value) * max(_size(value[0]), 1) if value else 0
    if hasattr(value, "tolist") and hasattr(value, "shape"):
        return prod(value.shape)
    return 1


JSON, CSV = "application/json", "text/csv"
NPY, NPZ = "application/x-npy", "application/x-npz"
TEXT_TYPES = (JSON, CSV)
MAX_UNPACKED_BYTES = 256 * 1024 * 1024
MAX_SPARSE_ROWS = 1 << 24
"""Limit for NPZ, where few bytes can mean many rows."""


class UnsupportedFormat(Exception):
    """No codec handles this content type."""

    def __init__(self, content_type: str | None, *, of_answer: bool = False) -> None:
        self.content_type = content_type or "Unknown"
        supported = f"{JSON}, {CSV} or {NPY}"
        if of_answer:
            advice = f"Accept {supported}, or write an output_fn that writes it."
        elif content_type:
            advice = f"Send {supported}, or write an input_fn that reads it."
        else:
            advice = f"The request names no ContentType: give one, such as {supported}."
        super().__init__(
            f"Content type {content_type} is not supported by this framework. {advice}"
        )


def decode(data: Any, content_type: str) -> Any:
    """Returns a numpy array; for NPZ, a scipy sparse matrix.

    Raises UnsupportedFormat, or ValueError for malformed data.
    """
    decoder = _DECODERS.get(media_type(content_type or ""))
    if decoder is None:
        raise UnsupportedFormat(content_type)
    return decoder(data)


def reject_object(values: Any) -> None:
    """Raises ValueError for JSON objects."""
    if values.ndim == 0 and values.dtype == object:
        raise ValueError("it is an object; send a list of rows, such as [[1, 2], [3, 4]]")


def encode(prediction: Any, content_type: str) -> str | bytes:
    """Raises UnsupportedFormat or TypeError."""
    encoder = _ENCODERS.get(content_type)
    if encoder is None:
        raise UnsupportedFormat(content_type, of_answer=True)
    return encoder(prediction)


def _from_json(data: Any) -> Any:
    import numpy

    return numpy.array(json.loads(data))


def _from_csv(data: Any) -> Any:
    import numpy

    text = data.decode() if isinstance(data, bytes | bytearray) else data
    return numpy.genfromtxt(io.StringIO(text), delimiter=",")


def _from_npy(data: bytes) -> Any:
    import numpy

    with _reject_false_headers():
        # Unpickling would run the sender's code.
        return numpy.load(io.BytesIO(data), allow_pickle=False)


def _from_npz(data: bytes) -> Any:
    import zipfile

    from scipy import sparse

    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        size = sum(member.file_size for member in packed.infolist())
    if size > MAX_UNPACKED_BYTES:
        raise ValueError(f"it unpacks to {size} bytes; at most {MAX_UNPACKED_BYTES} are taken")
    with _reject_false_headers():
        matrix = sparse.load_npz(io.BytesIO(data))
    if matrix.shape[0] > MAX_SPARSE_ROWS:
        raise ValueError(f"it has {matrix.shape[0]} rows; at most {MAX_SPARSE_ROWS} are taken")
    return matrix


@contextlib.contextmanager
def _reject_false_headers() -> Iterator[None]:
    """The header claims more than the body holds: a bad request, not out of memory."""
    try:
        yield
    except MemoryError as error:
        raise ValueError(f"it has fewer numbers than its header says: {error}") from None


def _to_json(prediction: Any) -> str:
    return json_text(prediction, _as_list)


def _as_list(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _to_csv(prediction: Any) -> str:
    import numpy

    text = io.StringIO()
    numpy.savetxt(text, prediction, delimiter=",", fmt="%s")
    return text.getvalue()


def _to_npy(prediction: Any) -> bytes:
    import numpy

    content = io.BytesIO()
    numpy.save(content, prediction)
    return content.getvalue()


_DECODERS: dict[str, Callable[[Any], Any]] = {
    JSON: _from_json,
    CSV: _from_csv,
    NPY: _from_npy,
    NPZ: _from_npz,
}
_ENCODERS: dict[str, Callable[[Any], str | bytes]] = {JSON: _to_json, CSV: _to_csv, NPY: _to_npy}
