"""Makes response bodies of arrays and lists."""

from typing import Any

from sagehen.containers.modelserver.adapters.shared import codecs

from . import content_types, errors

SUPPORTED_CONTENT_TYPES = (content_types.JSON, content_types.CSV, content_types.NPY)


def encode(array_like: Any, content_type: str) -> Any:
    if content_type not in SUPPORTED_CONTENT_TYPES:
        raise errors.UnsupportedFormatError(content_type)
    return codecs.encode(array_like, content_type)
