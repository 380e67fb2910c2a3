"""Statistics of distributions, held against the values themselves."""

import pytest

from sagehen.frame.statistics import of_set, of_values
from sagehen.services.monitoring.cloudwatch.extended_statistics import (
    low_sample_count,
    read_extended,
)

ONE_TO_TEN = of_values({float(value): 1 for value in range(1, 11)})


def compute(name, statistics=ONE_TO_TEN):
    read = read_extended(name)
    assert read is not None
    return read(statistics)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("p50", 5),
        ("p90", 9),
        ("p100", 10),
        ("tm90", 5),
        ("tm100", 5.5),
        ("TM(10%:90%)", 5.5),
        ("TM(:90%)", 5),
        ("TM(10%:)", 6),
        ("TM(2:8)", 5.5),
        ("TM(2.5:)", 6.5),
        ("TM(100:200)", None),
        ("IQM", 5.5),
        ("iqm", 5.5),
        ("tc90", 9),
        ("TC(2:8)", 6),
        ("TC(5%:95%)", 9),
        ("ts90", 45),
        ("TS(2:8)", 33),
        ("wm90", 5.4),
        ("WM(10%:90%)", 5.4),
        ("WM(3:8)", 5.5),
        ("PR(:3)", 30),
        ("PR(3:)", 70),
        ("PR(2:8)", 60),
    ],
)
def test_values(name, expected):
    assert compute(name) == (None if expected is None else pytest.approx(expected, rel=0.011))


@pytest.mark.parametrize(
    "name",
    [
        "TM",
        "TM()",
        "TM(:)",
        "TM(%:90%)",
        "TM(10%:90)",
        "TM(90%:10%)",
        "TM(5:5)",
        "TM(10%:101%)",
        "PR(10%:90%)",
        "PR(-1:5)",
        "tm",
        "tm101",
        "TM90",
        "IQ",
        "pr50",
        "",
    ],
)
def test_what_is_no_statistic(name):
    assert read_extended(name) is None


@pytest.mark.parametrize(
    "name", ["p50", "tm90", "TM(1:2)", "IQM", "tc90", "ts90", "wm90", "PR(:1)"]
)
def test_unknown_distributions_have_none(name):
    assert compute(name, of_set(3, 6, 1, 3)) is None
    assert compute(name, of_values({-1.0: 1, 2.0: 1})) is None


def test_equal_values_are_exact():
    assert compute("tm50", of_values({7.0: 3})) == 7
    assert compute("ts100", of_values({7.0: 3})) == 21


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("p99", 1000),
        ("p50", 20),
        ("p10", 100),
        ("p99.9", 10_000),
        ("p100", 0),
        ("tm99", 0),
        ("", 0),
    ],
)
def test_few_samples(name, least):
    assert low_sample_count(name) == least
