"""Bodies to arrays, and arrays to bodies."""

from typing import Any

from sagehen.containers.modelserver.adapters.shared import codecs

from . import content_types, errors

_KNOWN = (content_types.JSON, content_types.CSV, content_types.NPY)


def decode(obj: Any, content_type: str) -> Any:
    return codecs.decode(obj, _known(content_type))


def encode(array_like: Any, content_type: str) -> Any:
    return codecs.encode(array_like, _known(content_type))


def array_to_npy(array_like: Any) -> Any:
    return codecs.encode(array_like, content_types.NPY)


def npy_to_numpy(npy_array: bytes) -> Any:
    return codecs.decode(npy_array, content_types.NPY)


def array_to_json(array_like: Any) -> Any:
    return codecs.encode(array_like, content_types.JSON)


def json_to_numpy(string_like: Any, dtype: Any = None) -> Any:
    return _as_type(codecs.decode(string_like, content_types.JSON), dtype)


def array_to_csv(array_like: Any) -> Any:
    return codecs.encode(array_like, content_types.CSV)


def csv_to_numpy(string_like: Any, dtype: Any = None) -> Any:
    return _as_type(codecs.decode(string_like, content_types.CSV), dtype)


def _as_type(array: Any, dtype: Any) -> Any:
    return array if dtype is None else array.astype(dtype)


def _known(content_type: str) -> str:
    if content_type not in _KNOWN:
        raise errors.UnsupportedFormatError(content_type)
    return content_type
