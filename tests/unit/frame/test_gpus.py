from fractions import Fraction

import pytest

from sagehen.base.errors import Invalid
from sagehen.frame.gpus import GpuHolder, instance_fraction, read_fraction


def env(value):
    return {"SAGEHEN_GPU_FRACTION": value}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0.25", Fraction(1, 4)), (".5", Fraction(1, 2)), ("1", 1), ("1.0", 1), ("", None)],
)
def test_reads_a_fraction(text, expected):
    assert read_fraction(env(text)) == expected
    assert read_fraction({}) is None


@pytest.mark.parametrize("text", ["0", "0.0", "1.5", "2", "-0.5", "25%", "0.0001", "1/4", "nan"])
def test_refuses_what_is_no_fraction(text):
    with pytest.raises(Invalid, match=r"SAGEHEN_GPU_FRACTION is '.*above 0 and at most 1"):
        read_fraction(env(text))


def test_containers_add_up():
    assert instance_fraction([env("0.25"), env("0.5")]) == Fraction(3, 4)
    assert instance_fraction([env("0.25"), {}]) == 1
    assert instance_fraction([{}]) == 1
    with pytest.raises(Invalid, match=r"add up to 1\.25"):
        instance_fraction([env("0.75"), env("0.5")])


def test_names_a_holder():
    assert str(GpuHolder(endpoint="e", variant="v", instance="i-1")) == "endpoint e, instance i-1"
    assert str(GpuHolder(training_job="j", host="algo-1")) == "training job j, algo-1"
