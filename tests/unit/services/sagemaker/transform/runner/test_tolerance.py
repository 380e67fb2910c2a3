"""SAGEHEN_TRANSFORM_MAX_FAILED_RECORDS."""

from math import inf

import pytest

from sagehen.base.errors import Invalid
from sagehen.services.sagemaker.transform.runner.tolerance import parse_tolerance


@pytest.mark.parametrize(
    ("value", "failed", "records", "is_exceeded"),
    [
        ("0", 0, 10, False),
        ("0", 1, 10, True),
        ("3", 3, 3, False),
        ("3", 4, 1000, True),
        ("1%", 1, 100, False),
        ("1%", 1, 99, True),
        ("0.1%", 1, 1000, False),
        ("100%", 5, 5, False),
        (" 2.5% ", 3, 100, True),
    ],
)
def test_a_number_or_a_share(value: str, failed: int, records: int, is_exceeded: bool) -> None:
    assert parse_tolerance(value).is_exceeded(failed, records) is is_exceeded


@pytest.mark.parametrize("value", ["", "-1", "1.5", "101%", "1 %", "one", "%", "٣"])
def test_anything_else_is_refused(value: str) -> None:
    with pytest.raises(Invalid, match="SAGEHEN_TRANSFORM_MAX_FAILED_RECORDS"):
        parse_tolerance(value)


@pytest.mark.parametrize("value", ["3", "1%", "0.1%", "100%"])
def test_the_text_is_that_of_the_option(value: str) -> None:
    assert parse_tolerance(value).text == value


@pytest.mark.parametrize(
    ("value", "failed", "expected", "is_hopeless"),
    [
        ("3", 3, inf, False),
        ("3", 4, inf, True),
        ("1%", 10**9, inf, False),
        ("1%", 3000, 100_000, False),
        ("1%", 3001, 100_000, True),
    ],
)
def test_the_search_ends_when_it_is_hopeless(
    value: str, failed: int, expected: float, is_hopeless: bool
) -> None:
    assert parse_tolerance(value).is_hopeless(failed, expected) is is_hopeless
