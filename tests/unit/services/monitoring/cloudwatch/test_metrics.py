"""Dimensions, periods and statistics of requests."""

import pytest

from sagehen.frame.statistics import of_set, of_values
from sagehen.services.monitoring.cloudwatch.metrics import (
    check_period,
    is_statistic,
    read_dimensions,
    value,
)
from sagehen.wire.errors import AwsError


def dimension(name: str, content: str = "v") -> dict[str, str]:
    return {"Name": name, "Value": content}


def test_dimensions_are_sorted_by_name() -> None:
    assert read_dimensions([dimension("b"), dimension("a")], "D") == (("a", "v"), ("b", "v"))


@pytest.mark.parametrize(
    ("dimensions", "words"),
    [
        ([dimension("a"), dimension("a")], "comes twice in D"),
        ([dimension(":a")], "D.member.1.Name is invalid"),
        ([dimension("a"), dimension("b", " ")], "D.member.2.Value is invalid"),
        ([dimension("ä")], "D.member.1.Name is invalid"),
    ],
)
def test_bad_dimensions_are_refused(dimensions: list[dict[str, str]], words: str) -> None:
    with pytest.raises(AwsError, match=words):
        read_dimensions(dimensions, "D")


@pytest.mark.parametrize("seconds", [1, 5, 10, 20, 30, 60, 300, 86_400])
def test_periods(seconds: int) -> None:
    assert check_period(seconds) == seconds


@pytest.mark.parametrize("seconds", [0, 2, 15, 61, -60, 86_400 * 366])
def test_what_is_no_period(seconds: int) -> None:
    with pytest.raises(AwsError, match="must be 1, 5, 10, 20, 30 or a multiple of 60"):
        check_period(seconds)


@pytest.mark.parametrize("text", ["Sum", "p0", "p50", "p99.9", "p100", "p100.0", "tm90", "IQM"])
def test_statistics(text: str) -> None:
    assert is_statistic(text)


@pytest.mark.parametrize("text", ["p", "p101", "P50", "sum", "50", "p-1"])
def test_what_is_no_statistic(text: str) -> None:
    assert not is_statistic(text)


def test_values_of_statistics() -> None:
    statistics = of_values({1.0: 2, 4.0: 1})
    names = ("SampleCount", "Sum", "Average", "Minimum", "Maximum", "p100")
    assert [value(name, statistics) for name in names] == [3, 6, 2, 1, 4, 4]
    assert value("p50", of_set(2, 5, 1, 4)) is None
    assert value("p50", of_values({-1.0: 1})) is None
