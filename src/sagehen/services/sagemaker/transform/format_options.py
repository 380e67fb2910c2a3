"""Options of a transform job that say how its formats are read.

They are variables of the job's Environment that begin with SAGEHEN_TRANSFORM_; names here are
without that.
"""

from collections.abc import Mapping

import msgspec

from sagehen.base.errors import Invalid

__all__ = ["FORMAT_OPTIONS", "FormatOptions", "read_format_options"]

_PREFIX = "SAGEHEN_TRANSFORM_"
_CHOICES = {
    "CSV_QUOTED_NEWLINES": ("false", "true"),
    "SLICES": ("exclusive", "inclusive"),
    "FILTERS": ("sagemaker", "extended"),
    "PARQUET_AS": ("text/csv", "application/jsonlines"),
}
"""by name; the first value is the default"""

FORMAT_OPTIONS = tuple(_CHOICES)


class FormatOptions(msgspec.Struct, frozen=True, kw_only=True):
    csv_quoted_newlines: bool = False
    """fields of CSV may hold newlines between quotes"""
    inclusive_slices: bool = False
    """`$[1:4]` has the fifth element, as SageMaker's guide says; else not, as SageMaker does"""
    extended_filters: bool = False
    """names may have underscores, and ranges may be mixed with indexes"""
    parquet_as: str | None = None
    """ContentType that containers get for Parquet; None: text/csv"""


def read_format_options(options: Mapping[str, str]) -> FormatOptions:
    """Leaves options of other names to others. Raises Invalid."""
    values = {name: options.get(name, choices[0]) for name, choices in _CHOICES.items()}
    for name, value in values.items():
        if value not in _CHOICES[name]:
            raise Invalid(
                f'{_PREFIX}{name} is "{value}"; it has to be one of: {", ".join(_CHOICES[name])}.'
            )
    return FormatOptions(
        csv_quoted_newlines=values["CSV_QUOTED_NEWLINES"] == "true",
        inclusive_slices=values["SLICES"] == "inclusive",
        extended_filters=values["FILTERS"] == "extended",
        parquet_as=options.get("PARQUET_AS"),
    )
