"""Keys of outputs."""

import pytest

from sagehen.frame.s3_locations import Location, parse_location
from sagehen.services.sagemaker.transform.runner.output_keys import (
    errors_location,
    output_location,
    relative_name,
)


@pytest.mark.parametrize(
    ("prefix", "key", "name"),
    [
        ("in/", "in/a.csv", "a.csv"),
        ("in/", "in/a/b.csv", "a/b.csv"),
        ("in", "in/a/b.csv", "a/b.csv"),
        ("in/par", "in/part1.csv", "part1.csv"),
        ("in/par", "in/part/1.csv", "part/1.csv"),
        ("in/data", "in/data2/1.csv", "data2/1.csv"),
        ("in/data.csv", "in/data.csv", "data.csv"),
        ("data.csv", "data.csv", "data.csv"),
        ("", "a/b.csv", "a/b.csv"),
        ("in/", "in//b.csv", "/b.csv"),
        ("batch_transform", "batch_transform/0.png", "0.png"),
        ("in/", "in/über 1.csv", "über 1.csv"),
    ],
)
def test_names_below_the_output_path(prefix: str, key: str, name: str) -> None:
    assert relative_name(prefix, key) == name


@pytest.mark.parametrize("path", ["s3://out/to", "s3://out/to/"])
def test_outputs_and_errors_lie_side_by_side(path: str) -> None:
    output = output_location(parse_location(path), "a/b.csv")
    assert output == Location("out", "to/a/b.csv.out")
    assert errors_location(output) == Location("out", "to/a/b.csv.errors.jsonl")


def test_an_output_path_may_be_a_bucket() -> None:
    assert output_location(parse_location("s3://out"), "x") == Location("out", "x.out")
