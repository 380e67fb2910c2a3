"""The format of each object of a transform job: what the container gets, and how it is cut.

Parquet is converted where SageMaker would cut its bytes at newlines: with SplitType Line. Without
a SplitType the container gets the object as it is, as on SageMaker.
"""

import msgspec

from sagehen.services.sagemaker.transform.data_processing.media_types import (
    CSV,
    JSON_LINES,
    PROCESSED,
    media_type,
)
from sagehen.services.sagemaker.transform.format_options import FormatOptions, read_format_options
from sagehen.services.sagemaker.transform.runner_messages import RunnerSpec

__all__ = ["ObjectFormat", "container_content_type", "is_converted", "object_format"]

_PARQUET_TYPES = ("application/x-parquet", "application/vnd.apache.parquet")


class ObjectFormat(msgspec.Struct, frozen=True, kw_only=True):
    content_type: str | None
    """that the container gets"""
    quoted_newlines: bool
    """fields of CSV may hold newlines between quotes"""
    parquet_as: str | None
    """the object is Parquet, to be converted to this"""


def is_converted(content_type: str | None, split_type: str) -> bool:
    """Returns whether all objects of a job are Parquet that is converted."""
    return split_type == "Line" and media_type(content_type) in _PARQUET_TYPES


def container_content_type(
    content_type: str | None, split_type: str, options: FormatOptions
) -> str | None:
    """Returns the ContentType that containers get: the job's, but for Parquet that is converted."""
    if is_converted(content_type, split_type):
        return options.parquet_as or CSV
    return content_type


def object_format(spec: RunnerSpec, key: str) -> ObjectFormat:
    """Raises Invalid."""
    options = read_format_options(spec.options)
    content_type = container_content_type(spec.content_type, spec.split_type, options)
    form = media_type(content_type)
    is_parquet = content_type != spec.content_type or (
        spec.split_type == "Line" and key.endswith(".parquet") and form in PROCESSED
    )
    parquet_as = (CSV if form == CSV else JSON_LINES) if is_parquet else None
    return ObjectFormat(
        content_type=content_type,
        # Text of Parquet may hold newlines: then it is written with quotes.
        quoted_newlines=options.csv_quoted_newlines or parquet_as == CSV,
        parquet_as=parquet_as,
    )
