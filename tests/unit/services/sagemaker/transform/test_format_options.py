"""Options of ours are read once, and wrong values are refused by name."""

import pytest

from sagehen.base.errors import Invalid
from sagehen.services.sagemaker.transform.format_options import (
    FORMAT_OPTIONS,
    FormatOptions,
    read_format_options,
)


def test_defaults_are_those_of_sagemaker():
    assert read_format_options({}) == FormatOptions()


def test_options_are_read():
    assert read_format_options(
        {
            "CSV_QUOTED_NEWLINES": "true",
            "SLICES": "inclusive",
            "FILTERS": "extended",
            "PARQUET_AS": "application/jsonlines",
            "OF_OTHERS": "1",
        }
    ) == FormatOptions(
        csv_quoted_newlines=True,
        inclusive_slices=True,
        extended_filters=True,
        parquet_as="application/jsonlines",
    )


@pytest.mark.parametrize("name", FORMAT_OPTIONS)
def test_a_wrong_value_is_refused_by_name(name):
    with pytest.raises(Invalid, match=f'SAGEHEN_TRANSFORM_{name} is "yes"; it has to be one of: '):
        read_format_options({name: "yes"})
