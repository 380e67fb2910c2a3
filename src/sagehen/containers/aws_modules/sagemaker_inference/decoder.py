"""Makes NumPy arrays of request bodies."""

from typing import Any

from sagehen.containers.modelserver.adapters.shared import codecs

from . import content_types, errors

_KNOWN = (content_types.JSON, content_types.CSV, content_types.NPY, content_types.NPZ)


def decode(obj: Any, content_type: str) -> Any:
    if content_type not in _KNOWN:
        raise errors.UnsupportedFormatError(content_type)
    return codecs.decode(obj, content_type)
